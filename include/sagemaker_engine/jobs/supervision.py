"""Watch the instances of a job until all have ended, and say how they ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sagemaker_engine.sandbox.cluster import InstanceExit, SandboxCluster

STOP_GRACE_S = 120.0
"""What the service gives between SIGTERM and SIGKILL (StopTrainingJob's documentation)."""
LOSS_NOTICED_S = 5.0
"""How long the other hosts go on, times the time scale, until the service notices that one is lost."""
POLL_S = 0.1


class Ending(StrEnum):
    """Why the instances do not run any more."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    ABANDONED = "Abandoned"
    FAULT = "Fault"
    """The engine could not give the instances what they need, such as their data."""
    INTERRUPTED = "Interrupted"
    """Spot capacity was reclaimed."""
    HOST_FAILURE = "HostFailure"
    """The service lost hosts by its own fault."""


HOST_LOSSES = frozenset({Ending.INTERRUPTED, Ending.HOST_FAILURE})
"""Endings of the instances that need not be the end of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """That hosts vanish.

    `hosts` are the first to do so (None: all at once); the service ends the others when it notices. `notice_s` lies
    between SIGTERM to process 1 of these hosts and their end.
    """

    ending: Ending
    hosts: frozenset[str] | None = None
    notice_s: float = 0.0


class HostFaults(Protocol):
    """Faults of hosts while they run."""

    @property
    def poll_s(self) -> float:
        """Return how often somebody has to look, in seconds."""

    def loss(self, cluster: SandboxCluster) -> Loss | None:
        """Let happen what is due, and return the loss of hosts if that is among it."""

    def vanished(self, hosts: frozenset[str]) -> None:
        """Take note that these hosts vanish now; called right before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of all instances; `failure` is the first that failed by itself.

    `last_line` is the last that the failed instance's program printed; `fault` is the FailureReason
    of a job that ended by FAULT. `gone_at` says when hosts that are lost vanish, as time.monotonic(): one whose program
    ended within the notice is there until the notice is over.
    """

    ending: Ending
    failure: InstanceExit | None = None
    last_line: str = ""
    fault: str | None = None
    gone_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Supervision:
    """One watch over one cluster.

    `order` says whether the job shall end (STOPPED, MAX_WAIT_TIME_EXCEEDED, ABANDONED, FAULT) or may go on (None); it
    is asked ten times a second. `deadline` is a time.monotonic() value. `on_stopping` is called once, before SIGTERM
    goes out. `time_scale` multiplies STOP_GRACE_S and LOSS_NOTICED_S.
    """

    cluster: SandboxCluster
    order: Callable[[], Ending | None]
    deadline: float
    time_scale: float
    on_stopping: Callable[[Ending], None]
    faults: HostFaults | None = None
    _ordered: Ending | None = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)
    _victims: frozenset[str] = field(default=frozenset(), init=False)
    _kill_at: float = field(default=float("inf"), init=False)
    _failure: InstanceExit | None = field(default=None, init=False)
    _gone_at: dict[str, float] = field(default_factory=dict, init=False)

    def run(self) -> Outcome:
        """Return once all instances have ended: by themselves, by order, since one failed or all vanished."""
        while self.cluster.running:
            poll_s = POLL_S if self.faults is None else min(POLL_S, self.faults.poll_s)
            for ended in self.cluster.wait(poll_s):
                self._note(ended)
            if self._failure is None:
                self._look_for_order()
                self._look_for_loss()
            self._kill_when_due()
        if self._ordered is not None:
            last = max(self._gone_at.values(), default=0.0)
            names = [each.name for each in self.cluster.plan.instances]
            gone_at = {name: self._gone_at.get(name, last) for name in names}
            return Outcome(ending=self._ordered, gone_at=gone_at)
        ending = Ending.COMPLETED if self._failure is None else Ending.FAILED
        return Outcome(ending=ending, failure=self._failure)

    def _note(self, ended: InstanceExit) -> None:
        if ended.code == 0 or self._ordered is not None or self._failure is not None:
            return
        self._failure = ended
        self._kill_at = time.monotonic()  # The others cannot finish without it.

    def _look_for_order(self) -> None:
        """Take an order; it also overrules a loss that was announced, as the hosts are still there."""
        now = time.monotonic()
        if self._ordered not in {None, *HOST_LOSSES} or now - self._asked_at < POLL_S:
            return
        self._asked_at = now
        ordered = self.order()
        if ordered is None and self._ordered is None and now >= self.deadline:
            ordered = Ending.MAX_RUNTIME_EXCEEDED
        if ordered is None:
            return
        self._ordered, self._victims = ordered, frozenset()
        self.on_stopping(ordered)
        self._kill_at = min(self._kill_at, now + STOP_GRACE_S * self.time_scale)
        self._send(signal.SIGTERM, self.cluster.running)

    def _look_for_loss(self) -> None:
        if self.faults is None or self._ordered is not None:
            return
        loss = self.faults.loss(self.cluster)
        if loss is None:
            return
        self._ordered = loss.ending
        self._victims = self.cluster.running if loss.hosts is None else loss.hosts
        self._kill_at = time.monotonic() + loss.notice_s
        self._gone_at = dict.fromkeys(self._victims, self._kill_at)
        if loss.notice_s:
            self._send(signal.SIGTERM, self._victims)

    def _kill_when_due(self) -> None:
        lost = self._ordered in HOST_LOSSES
        if lost and not self._victims & self.cluster.running:
            # What the notice was for has ended; the service ends the hosts that are left.
            self._victims = self.cluster.running
            self._kill_at = time.monotonic() + LOSS_NOTICED_S * self.time_scale
            self._gone_at = dict.fromkeys(self._victims, self._kill_at) | self._gone_at
        if time.monotonic() < self._kill_at:
            return
        victims = self._victims if lost else self.cluster.running
        if lost and self.faults is not None:
            self.faults.vanished(victims & self.cluster.running)
        self._send(signal.SIGKILL, victims)

    def _send(self, number: signal.Signals, hosts: frozenset[str]) -> None:
        for instance in hosts & self.cluster.running:
            self.cluster.signal(instance, number)
