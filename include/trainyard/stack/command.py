"""A command of the launcher: its exit status, its signals, and its clean-up.

A guarded command forks once at its start. The child does the work, and the parent, the reaper, waits. When the child
ends for any reason, also by SIGKILL, the reaper ends all remaining descendants. If the reaper is killed, the child gets
SIGTERM and stops as usual.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from trainyard.errors import TrainingRunError
from trainyard.stack import processes
from trainyard.stack.pdeathsig import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

WRONG_INPUT, INTERRUPTED = 2, 130
LEFTOVER_GRACE_S = 5.0


def carry_out(command: Callable[[Console], int], *, is_guarded: bool) -> int:
    """Run a command and return its exit status: 0 = success, 1 = failure, 2 = wrong input, 130 = interrupt.

    Args:
        command: function that runs the command with the terminal's console.
        is_guarded: whether a parent process ends everything that the command started, even if the command is killed.
    """
    console = Console(soft_wrap=not sys.stdout.isatty())
    if is_guarded:
        fork_guarded()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        return command(console)
    except KeyboardInterrupt:
        console.print("interrupted; everything it started is stopped")
        return INTERRUPTED
    except TrainingRunError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return WRONG_INPUT


def fork_guarded() -> None:
    """Fork, and return in the child process only.

    The calling process becomes the reaper: it waits for the child, ends the processes that the child left
    running, and then exits. On systems other than Linux, the function returns without a fork.
    """
    if sys.platform != "linux":
        return
    processes.become_subreaper()
    reaper = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != reaper:
            os._exit(1)
        processes.become_subreaper()
        return
    os._exit(_guard(child))


def _guard(child: int) -> int:
    """Wait for the child, end its remaining descendants, and return its exit code."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        processes.signal_all([child], signal.Signals(number))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets a terminal's Ctrl-C directly
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, pass_on)
    code = _wait_for(child)
    processes.end_all(os.getpid(), grace_s=LEFTOVER_GRACE_S)
    return code if code >= 0 else 128 - code


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()  # also collects adopted orphans
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
