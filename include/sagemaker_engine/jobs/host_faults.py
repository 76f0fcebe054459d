"""Faults of the hosts of one attempt: the link between their moments and their effects.

`fault_moments` decides when a fault is due. Spot interruptions and host failures remove hosts. While instances run,
such a fault is returned as a `Loss`, which `supervision` executes. During downloads and uploads it raises
`HostsLostError`. `disturbances` carries out all other faults.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagemaker_engine.faults.model import FaultKind, JobState
from sagemaker_engine.jobs.supervision import POLL_S, Ending, Loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.channels.checkpoints import Mirrors
    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.jobs.disturbances import Disturbances
    from sagemaker_engine.jobs.fault_moments import Moments
    from sagemaker_engine.sandbox.cluster import SandboxCluster
    from sagemaker_engine.sandbox.folder_watch import FolderWatch

log = logging.getLogger(__name__)

CLOSE_POLL_S = 0.01
"""Polling interval in seconds while a fault is pending or active."""
_ENDINGS = {
    FaultKind.INTERRUPT: Ending.INTERRUPTED,
    FaultKind.HOST_FAILURE: Ending.HOST_FAILURE,
}


class HostsLostError(Exception):
    """The hosts were lost while no program of the user ran: during downloads or uploads."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


@dataclass(slots=True, kw_only=True)
class AttemptFaults:
    """Faults of one attempt, from its downloads to its uploads.

    The end of the training plan's window is treated as a fault that removes all hosts. `disturbances` applies
    the faults that leave the hosts in place. `watch` detects writes of checkpoints, for faults that are due
    when a checkpoint is written.
    """

    moments: Moments
    disturbances: Disturbances
    watch: FolderWatch
    window_loss: Callable[[], Ending | None] = lambda: None
    """Returns the ending if the window of the job's training plan is over, otherwise None."""
    _mirrors: Mirrors | None = field(default=None, init=False)
    _known: list[Fault] | None = field(default=None, init=False)
    """The `disk_full` faults that were known before the instances were created; None before the first call."""

    def pass_state(self, state: JobState) -> None:
        """Enter a phase in which no program of the user runs.

        Raises:
            HostsLostError: A fault removes the hosts. The fault takes effect at once, without the notice of a spot
                interruption, because no program could use it.
        """
        self.moments.enter(state)
        self.check()

    def check(self) -> None:
        """Raise `HostsLostError` if a fault that removes hosts is due, or if the training plan's window has ended.

        A spot interruption gives no notice here. The method is called during downloads and uploads, when no program
        of the user runs that could use the notice.

        Raises:
            HostsLostError: The hosts are lost at once.
        """
        if (lost := self.window_loss()) is not None:
            raise HostsLostError(lost)
        for fault in self.moments.due(kinds=_ENDINGS):
            log.info("fault %s: the hosts are lost: %s", fault.id, fault.what)
            raise HostsLostError(_ENDINGS[fault.what])

    def will_fill(self, host: str) -> bool:
        """Return whether a `disk_full` fault can occur on this host in this attempt.

        The faults are read at the first call, for all hosts. Later changes of the faults do not affect the result.
        """
        if self._known is None:
            self._known = [f for f in self.moments.awaited if f.what is FaultKind.DISK_FULL]
        return any(each.hits_host(host) for each in self._known)

    def begin_training(self, mirrors: Mirrors) -> None:
        """Record that the instances are running, and start to watch the checkpoint folders."""
        self._mirrors = mirrors
        self.watch.begin()
        self.moments.enter(JobState.TRAINING)

    @property
    def poll_s(self) -> float:
        """Return the polling interval in seconds."""
        busy = self.disturbances.are_under_way or self.moments.awaited
        return CLOSE_POLL_S if busy else POLL_S

    def loss(self, cluster: SandboxCluster) -> Loss | None:
        """Apply the due faults. If a fault removes hosts, return their loss, otherwise None."""
        self.disturbances.go_on(cluster)
        if (lost := self.window_loss()) is not None:
            return Loss(ending=lost)
        loss = None
        for fault in self.moments.due(is_checkpointing=self.watch.has_changed()):
            log.info("fault %s occurs: %s", fault.id, fault.what)
            if fault.what not in _ENDINGS:
                self.disturbances.begin(fault, cluster)
            else:
                loss = Loss(
                    ending=_ENDINGS[fault.what],
                    hosts=None if fault.hosts is None else frozenset(fault.hosts),
                    notice_s=fault.notice_s if fault.what is FaultKind.INTERRUPT else 0.0,
                )
        return loss

    def close(self) -> None:
        """Release the resources of the faults."""
        self.watch.close()
        self.disturbances.close()

    def vanished(self, hosts: frozenset[str]) -> None:
        """Stop the uploads of these hosts, because the files on their disks are lost with them."""
        if self._mirrors is not None:
            self._mirrors.abandon(hosts)
