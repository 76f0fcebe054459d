"""Supervision of a job's instances until all have ended, and the outcome."""

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
"""Grace period in seconds between SIGTERM and SIGKILL (documentation of StopTrainingJob)."""
LOSS_NOTICED_S = 5.0
"""Seconds, times the time scale, until the service notices a lost host; the other hosts run on until then."""
POLL_S = 0.1


class Ending(StrEnum):
    """Reason why the instances of a job have ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    ABANDONED = "Abandoned"
    FAULT = "Fault"
    """The engine could not provide a resource that the instances need, such as their data."""
    INTERRUPTED = "Interrupted"
    """Spot capacity was reclaimed."""
    HOST_FAILURE = "HostFailure"
    """The service lost hosts through its own fault."""
    WINDOW_ENDED = "WindowEnded"
    """The window of the job's training plan ends."""


HOST_LOSSES = frozenset({Ending.INTERRUPTED, Ending.HOST_FAILURE, Ending.WINDOW_ENDED})
"""Endings after which the job may continue with another attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Loss of hosts.

    - `hosts`: the hosts that are lost first; None if all hosts are lost at once. The service ends the other
      hosts when it detects the loss.
    - `notice_s`: seconds between SIGTERM and the loss; 0 for a loss without SIGTERM. The signal is sent to
      process 1 of each host that is lost first.
    """

    ending: Ending
    hosts: frozenset[str] | None = None
    notice_s: float = 0.0


class HostFaults(Protocol):
    """Faults of hosts while the instances run."""

    @property
    def poll_s(self) -> float:
        """Return the polling interval in seconds."""

    def loss(self, cluster: SandboxCluster) -> Loss | None:
        """Apply the due faults. If a fault removes hosts, return their loss, otherwise None."""

    def vanished(self, hosts: frozenset[str]) -> None:
        """Record that these hosts are lost; called immediately before they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of all instances.

    - `failure`: the first instance that failed by itself.
    - `last_line`: the last line that the failed instance's program printed.
    - `fault`: the job's FailureReason if `ending` is `Ending.FAULT`.
    - `gone_at`: host name -> the time.monotonic() value at which the host is lost. If hosts are lost after a
      notice (`Loss.notice_s`), they exist until the notice is over, even if their programs end earlier.
    """

    ending: Ending
    failure: InstanceExit | None = None
    last_line: str = ""
    fault: str | None = None
    gone_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Supervision:
    """Supervision of one cluster.

    - `order`: returns the reason to end the job (STOPPED, MAX_WAIT_TIME_EXCEEDED, ABANDONED, FAULT), or None;
      called at most ten times per second.
    - `deadline`: the time.monotonic() value from which the job exceeds its maximum runtime.
    - `on_stopping`: called once, before SIGTERM is sent.
    - `time_scale`: factor by which the durations STOP_GRACE_S and LOSS_NOTICED_S are multiplied.
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
        """Supervise the instances until all have ended, and return the outcome."""
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
        self._kill_at = time.monotonic()  # The others cannot finish without the failed one.

    def _look_for_order(self) -> None:
        """Begin to stop all instances if `order` returns a reason, or if the deadline has passed.

        Once a loss of hosts has begun, the deadline is ignored. If `order` returns a reason during the loss, this
        reason replaces the loss as the reason for the job's end.
        """
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
            # The hosts with notice have ended; the service ends the remaining hosts.
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
