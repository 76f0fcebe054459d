"""A command of the launcher: its exit status, its signals, and its end if its starter is killed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from trainyard.errors import TrainingRunError
from trainyard.stack import reaper

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

WRONG_INPUT, INTERRUPTED = 2, 130


def carry_out(command: Callable[[Console], int], *, is_guarded: bool) -> int:
    """Return the command's status: 0 for done, 1 for failed, 2 for wrong input, 130 for interrupted.

    Args:
        command: runs with the terminal's console.
        is_guarded: a parent process ends everything that the command started, even if the command is killed.
    """
    console = Console(soft_wrap=not sys.stdout.isatty())
    if is_guarded:
        reaper.fork_guarded()
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


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
