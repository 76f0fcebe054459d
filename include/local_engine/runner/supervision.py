"""Watch the instances of a job until all have ended, and say how the job ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from include.local_engine.sandbox.cluster import Cluster, InstanceExit

STOP_GRACE_S = 120.0
"""What the service gives between SIGTERM and SIGKILL (StopTrainingJob's documentation)."""
POLL_S = 0.1


class Ending(StrEnum):
    """Why the instances do not run any more."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    ABANDONED = "Abandoned"
    FAULT = "Fault"
    """The engine could not give the instances what they need, such as their data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the instances ended; `failure` is the first that failed by itself.

    `last_line` is the last that the failed instance's program printed; `fault` is the FailureReason
    of a job that ended by FAULT.
    """

    ending: Ending
    failure: InstanceExit | None = None
    last_line: str = ""
    fault: str | None = None


@dataclass(slots=True, kw_only=True)
class Supervision:
    """One watch over one cluster.

    `order` says whether the job shall end (STOPPED, ABANDONED, FAULT) or may go on (None); it is
    asked ten times a second. `deadline` is a time.monotonic() value. `on_stopping` is called once, before
    SIGTERM goes out.
    """

    cluster: Cluster
    order: Callable[[], Ending | None]
    deadline: float
    grace_s: float
    on_stopping: Callable[[Ending], None]
    _ordered: Ending | None = field(default=None, init=False)
    _kill_at: float = field(default=float("inf"), init=False)
    _failure: InstanceExit | None = field(default=None, init=False)

    def run(self) -> Outcome:
        """Return once all instances have ended: by themselves, by order, or since one failed."""
        while self.cluster.running:
            for ended in self.cluster.wait(POLL_S):
                self._note(ended)
            if self._ordered is None and self._failure is None:
                self._look_for_order()
            elif time.monotonic() >= self._kill_at:
                self._send(signal.SIGKILL)
        if self._ordered is not None:
            return Outcome(ending=self._ordered)
        ending = Ending.COMPLETED if self._failure is None else Ending.FAILED
        return Outcome(ending=ending, failure=self._failure)

    def _note(self, ended: InstanceExit) -> None:
        if ended.code == 0 or self._ordered is not None or self._failure is not None:
            return
        self._failure = ended
        self._kill_at = time.monotonic()  # The others cannot finish without it.

    def _look_for_order(self) -> None:
        ordered = self.order()
        if ordered is None and time.monotonic() >= self.deadline:
            ordered = Ending.MAX_RUNTIME_EXCEEDED
        if ordered is None:
            return
        self._ordered = ordered
        self.on_stopping(ordered)
        self._kill_at = time.monotonic() + self.grace_s
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for instance in self.cluster.running:
            self.cluster.signal(instance, number)
