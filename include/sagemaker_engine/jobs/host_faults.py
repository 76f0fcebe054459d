"""Let faults happen to the hosts of one attempt: those that take hosts away, and those that do not."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagemaker_engine.faults import FaultKind, JobState
from sagemaker_engine.jobs.supervision import POLL_S, Ending, Loss

if TYPE_CHECKING:
    from sagemaker_engine.channels.checkpoints import Mirrors
    from sagemaker_engine.faults import Fault
    from sagemaker_engine.jobs.disturbances import Disturbances
    from sagemaker_engine.jobs.fault_moments import Moments
    from sagemaker_engine.sandbox.cluster import SandboxCluster
    from sagemaker_engine.sandbox.folder_watch import FolderWatch

log = logging.getLogger(__name__)

CLOSE_POLL_S = 0.01
"""How often to look while a fault waits for its moment."""
_ENDINGS = {
    FaultKind.INTERRUPT: Ending.INTERRUPTED,
    FaultKind.HOST_FAILURE: Ending.HOST_FAILURE,
}


class HostsLostError(Exception):
    """The hosts of the attempt are gone while the platform worked on them."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


@dataclass(slots=True, kw_only=True)
class AttemptFaults:
    """Faults of one attempt, from its downloads to its uploads.

    `disturbances` do what leaves the hosts there; `watch` tells when a checkpoint is being written.
    """

    moments: Moments
    disturbances: Disturbances
    watch: FolderWatch
    _mirrors: Mirrors | None = field(default=None, init=False)
    _known: list[Fault] | None = field(default=None, init=False)
    """The faults that fill disks, which had to be known before the instances were set up."""

    def pass_state(self, state: JobState) -> None:
        """Enter a state in which no program of the user runs.

        Raises:
            HostsLostError: A fault takes the hosts away; notice would reach nobody, so it is at once.
        """
        self.moments.enter(state)
        self.check()

    def check(self) -> None:
        """Let faults come that are due.

        Raises:
            HostsLostError: As `pass_state`.
        """
        for fault in self.moments.due():
            if fault.what in _ENDINGS:
                log.info("fault %s: the hosts vanish: %s", fault.id, fault.what)
                raise HostsLostError(_ENDINGS[fault.what])

    def will_fill(self, host: str) -> bool:
        """Return whether the host's checkpoint folder may become full, as known when first asked."""
        if self._known is None:
            self._known = [f for f in self.moments.awaited if f.what is FaultKind.DISK_FULL]
        return any(each.hits_host(host) for each in self._known)

    def begin_training(self, mirrors: Mirrors) -> None:
        """Take note that process 1 of every host runs now."""
        self._mirrors = mirrors
        self.watch.begin()
        self.moments.enter(JobState.TRAINING)

    @property
    def poll_s(self) -> float:
        """Return how often somebody has to look, in seconds."""
        busy = self.disturbances.are_under_way or self.moments.awaited
        return CLOSE_POLL_S if busy else POLL_S

    def loss(self, cluster: SandboxCluster) -> Loss | None:
        """Let happen what is due, and return the loss of hosts if that is among it."""
        self.disturbances.go_on(cluster)
        loss = None
        for fault in self.moments.due(is_checkpointing=self.watch.has_changed()):
            log.info("fault %s comes: %s", fault.id, fault.what)
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
        """Give back what the faults needed."""
        self.watch.close()
        self.disturbances.close()

    def vanished(self, hosts: frozenset[str]) -> None:
        """Keep what these hosts have on disk from S3: they are gone with it."""
        if self._mirrors is not None:
            self._mirrors.abandon(hosts)
