"""Parent process that cleans up even if the launcher is killed with SIGKILL.

The command forks once at its start. The child does the work, and the parent waits. When the child ends for any reason,
the parent ends all remaining descendants. If the parent is killed, the child gets SIGTERM and stops as usual.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

from trainyard.stack import processes
from trainyard.stack.pdeathsig import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from types import FrameType

LEFTOVER_GRACE_S = 5.0


def fork_guarded() -> None:
    """Return in a child process. The calling process becomes the reaper and does not return (Linux only)."""
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
