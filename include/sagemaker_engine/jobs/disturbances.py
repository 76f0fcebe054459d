"""Faults after which the hosts still exist: killed rank, hanging or slow host, cut network link, full disk.

None of these faults counts as a spot interruption. The following modules apply the faults of one attempt:

- `fault_moments`: decides when a fault of the hosts is due.
- `host_faults`: turns a due spot interruption or host failure into a loss, and passes all other faults to
  this module.
- `supervision`: executes a loss of running hosts by SIGKILL. If the loss has a `notice_s` above 0,
  SIGTERM is sent that many seconds earlier.
- `disturbances`: carries out the faults that leave the hosts in place.
- `training`: applies faults to the request for instances.
"""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sagemaker_engine.faults.model import FaultKind
from sagemaker_engine.sandbox import inside
from sagemaker_engine.sandbox.members import members, send, training_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.jobs.volumes import Volume
    from sagemaker_engine.sandbox.cluster import SandboxCluster

log = logging.getLogger(__name__)

CYCLE_S = 0.2
"""Period in seconds: a slow host runs and is suspended once in each period."""


class Disturbance(Protocol):
    """A fault with a duration."""

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Apply the changes that are due at `now` (time.monotonic()). Return whether the fault continues."""


@dataclass(slots=True, kw_only=True)
class Disturbances:
    """Active faults of one attempt. `log_line` writes to a host's log if a fault is not possible on this machine."""

    log_line: Callable[[str, str], None]
    has_network: bool
    clock: Callable[[], float] = time.monotonic
    volumes: dict[str, Volume] = field(default_factory=dict, init=False)
    """Checkpoint folders on separate disks, which can be filled, by host."""
    _under_way: list[Disturbance] = field(default_factory=list, init=False)

    @property
    def are_under_way(self) -> bool:
        """Return whether a fault with a duration is active."""
        return bool(self._under_way)

    def begin(self, fault: Fault, cluster: SandboxCluster) -> None:
        """Apply a fault. If the machine does not support it, a line in the job's log reports that.

        Raises:
            AssertionError: The fault removes hosts.
        """
        hosts = [each.name for each in cluster.plan.instances if fault.hits_host(each.name)]
        until = float("inf") if fault.duration_s is None else self.clock() + fault.duration_s
        match fault.what:
            case FaultKind.KILL_RANK:
                _kill_rank(cluster, hosts)
            case FaultKind.HANG:
                self._last(Standstill(hosts=hosts, until=until), cluster)
            case FaultKind.SLOW:
                self._last(DutyCycle(hosts=hosts, until=until, factor=fault.factor), cluster)
            case FaultKind.CUT_LINK:
                self._cut(fault, hosts, until, cluster)
            case FaultKind.DISK_FULL:
                self._fill(fault, hosts, until, cluster)
            case _:
                raise AssertionError(
                    f"fault {fault.what} is not one that leaves the hosts in place"
                )

    def go_on(self, cluster: SandboxCluster) -> None:
        """Apply the due changes of the active faults, and drop faults that are over."""
        now = self.clock()
        self._under_way = [each for each in self._under_way if self._lasts(each, cluster, now)]

    def close(self) -> None:
        """Close the hosts' checkpoint volumes, which the disk faults fill."""
        for each in self.volumes.values():
            each.close()
        self.volumes.clear()

    def _cut(
        self, fault: Fault, hosts: Sequence[str], until: float, cluster: SandboxCluster
    ) -> None:
        if not self.has_network:
            self._refuse(fault, hosts, "instances share this machine's network")
            return
        names = [each.name for each in cluster.plan.instances]
        cables = [names.index(each) for each in hosts]
        self._last(CutLink(cables=cables, until=until), cluster)

    def _fill(
        self, fault: Fault, hosts: Sequence[str], until: float, cluster: SandboxCluster
    ) -> None:
        volumes = [self.volumes[each] for each in hosts if each in self.volumes]
        if not volumes:
            self._refuse(
                fault,
                hosts,
                "the checkpoint folder is not on a separate disk, which requires mount namespaces, a CheckpointConfig "
                "and a fault that was stored before the attempt began",
            )
            return
        self._last(FullDisk(volumes=volumes, until=until), cluster)

    def _refuse(self, fault: Fault, hosts: Sequence[str], reason: str) -> None:
        for host in hosts:
            self.log_line(host, f"fault {fault.id} ({fault.what}) has no effect: {reason}")

    def _last(self, disturbance: Disturbance, cluster: SandboxCluster) -> None:
        if self._lasts(disturbance, cluster, self.clock()):
            self._under_way.append(disturbance)

    def _lasts(self, disturbance: Disturbance, cluster: SandboxCluster, now: float) -> bool:
        try:
            return disturbance.go_on(cluster, now)
        except OSError as error:
            self.log_line(cluster.plan.instances[0].name, f"a fault has no effect: {error}")
            return False


@dataclass(slots=True, kw_only=True)
class Standstill:
    """Suspension of all processes of some hosts until `until` (time.monotonic())."""

    hosts: Sequence[str]
    until: float

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Suspend all processes, also new ones, or resume them at the fault's end.

        Return whether the fault continues.
        """
        if now >= self.until:
            _send(cluster, self.hosts, signal.SIGCONT)
            return False
        _send(cluster, self.hosts, signal.SIGSTOP)
        return True


@dataclass(slots=True, kw_only=True)
class DutyCycle:
    """Slowdown of some hosts until `until` (time.monotonic()).

    In each period of `CYCLE_S` seconds, the hosts' processes run for `factor` x `CYCLE_S` seconds, and are
    suspended for the rest.
    """

    hosts: Sequence[str]
    until: float
    factor: float
    _stands: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Resume the processes when a period begins, and suspend them when the share `factor` of the period is over.

        Return whether the fault continues.
        """
        lasts = now < self.until
        stands = lasts and now % CYCLE_S >= self.factor * CYCLE_S
        if stands != self._stands:
            self._stands = stands
            _send(cluster, self.hosts, signal.SIGSTOP if stands else signal.SIGCONT)
        return lasts


@dataclass(slots=True, kw_only=True)
class CutLink:
    """Loss of all packets of some instances until `until` (time.monotonic()).

    `cables` has the indices of these instances in the cluster.
    """

    cables: Sequence[int]
    until: float
    _is_cut: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Cut or restore the instances' network links when due; return whether the fault continues.

        Raises:
            OSError: The kernel rejects the change of a link.
        """
        lasts = now < self.until
        if lasts and not self._is_cut:
            inside.cut_cables(cluster.holder, self.cables)
            self._is_cut = True
        if not lasts:
            inside.mend_cables(cluster.holder, self.cables)
        return lasts


@dataclass(slots=True, kw_only=True)
class FullDisk:
    """Checkpoint folders that are full while `time.monotonic()` is less than `until`."""

    volumes: Sequence[Volume]
    until: float
    _is_full: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Fill or free the folders when due; return whether the fault continues.

        Raises:
            OSError: The kernel rejects it.
        """
        lasts = now < self.until
        for volume in self.volumes:
            if lasts and not self._is_full:
                volume.fill(cluster)
            if not lasts:
                volume.free(cluster)
        self._is_full = lasts
        return lasts


def _kill_rank(cluster: SandboxCluster, hosts: Sequence[str]) -> None:
    """Kill one training process of the first host that has one."""
    for host in hosts:
        pid = training_process(cluster.first_process(host))
        if pid is not None:
            log.info("process %s of %s is killed", pid, host)
            send([pid], signal.SIGKILL)
            return


def _send(cluster: SandboxCluster, hosts: Sequence[str], number: signal.Signals) -> None:
    for host in hosts:
        pids = [each.pid for each in members(cluster.first_process(host))]
        send(pids, number)
