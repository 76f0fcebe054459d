"""Leftover processes of a stack whose supervisor was killed.

They are found by an environment variable that all processes of the stack inherit.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.stack import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.stack.home import Home

MARK = "TRAINYARD_STACK_HOME"
GRACE_S = 5.0


def marked(home: Home) -> list[int]:
    """Return the pids of other processes with this home in their environment variable `MARK`."""
    return [pid for pid in _marked(home) if pid != os.getpid()]


def end_leftovers(home: Home) -> int:
    """End the leftover processes of this home's stack and return their number."""
    first = marked(home)
    processes.signal_all(first, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while left := marked(home):
        if time.monotonic() > deadline:
            processes.signal_all(left, signal.SIGKILL)
        time.sleep(processes.POLL_S)
    return len(first)


def _marked(home: Home) -> Iterator[int]:
    mark = f"{MARK}={home.path}".encode()
    for entry in processes.process_table().values():
        with suppress(OSError):
            if mark in Path(f"/proc/{entry.pid}/environ").read_bytes().split(b"\0"):
                yield entry.pid
