"""Stop request: a SIGTERM, recorded until the training checks it at the end of a step or before a validation batch.

A spot interruption, StopTrainingJob and MaxRuntimeInSeconds send the same signal, so a script cannot distinguish them.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

EXIT_CODE_TERMINATED = 128 + signal.SIGTERM
GRACE_VARIABLE = "TRAINYARD_STOP_GRACE_S"
STOP_GRACE_S = 120.0
"""Seconds between SIGTERM and SIGKILL (SageMaker's API reference, StopTrainingJob, read November 2026); a spot
interruption's notice is about as long."""
LAST_SHARE = 1 / 24
"""Share of the grace period, at its end, in which nothing is written: 5 s of 120 s."""
POLL_S = 0.1


class StoppedError(Exception):
    """Work was abandoned because a rank received SIGTERM. All ranks raise it."""


class StopRequest:
    """Stop request of this process.

    Args:
        grace_s: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, *, grace_s: float = STOP_GRACE_S) -> None:
        self.received = False
        self.grace_s = grace_s
        self._received_at = math.inf

    def install(self) -> StopRequest:
        """Install the handler of SIGTERM and return this object; needs the main thread."""
        signal.signal(signal.SIGTERM, self._remember)
        return self

    @property
    def seconds_left(self) -> float:
        """The seconds until the platform kills this process; infinite before a SIGTERM."""
        return self._received_at + self.grace_s - time.monotonic()

    @contextmanager
    def bounded(self, undo: Callable[[], None]) -> Iterator[None]:
        """Run the body; if a stop's grace period is almost over, call `undo` and end the process with exit code 143.

        A kill therefore leaves no partly written files. `undo` is called on another thread, while the body still runs.
        """
        has_ended = threading.Event()

        def watch() -> None:
            while not has_ended.wait(POLL_S):
                if self.seconds_left < LAST_SHARE * self.grace_s:
                    try:
                        undo()
                        sys.stdout.flush()
                        sys.stderr.flush()
                    finally:
                        os._exit(EXIT_CODE_TERMINATED)

        thread = threading.Thread(target=watch, name="grace", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        self.received = True
        self._received_at = min(self._received_at, time.monotonic())


def grace_of(environ: Mapping[str, str]) -> float:
    """Return the seconds between SIGTERM and SIGKILL: those of TRAINYARD_STOP_GRACE_S, by default SageMaker's 120.

    Raises:
        HyperparameterError: the variable is not a number above 0.
    """
    given = environ.get(GRACE_VARIABLE, "")
    if not given:
        return STOP_GRACE_S
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise HyperparameterError(
            f"the variable {GRACE_VARIABLE} is {given!r}; allowed: seconds above 0, such as 120. Correct it in the "
            "job's environment, or remove it"
        )
    return seconds
