"""Faults that leave the hosts where they are: a killed rank, a host that hangs or is slow, a cut link, a full disk."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sagemaker_engine.faults import FaultKind
from sagemaker_engine.sandbox import inside
from sagemaker_engine.sandbox.members import members, send, training_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.faults import Fault
    from sagemaker_engine.jobs.volumes import Volume
    from sagemaker_engine.sandbox.cluster import SandboxCluster

log = logging.getLogger(__name__)

CYCLE_S = 0.2
"""A slow host runs and stands still once in this time."""


class Disturbance(Protocol):
    """One that lasts."""

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Do what is due at this time.monotonic(); return whether it lasts on."""


@dataclass(slots=True, kw_only=True)
class Disturbances:
    """Those of one attempt. `say` writes a line into a host's log: what cannot be done on this machine."""

    say: Callable[[str, str], None]
    has_network: bool
    clock: Callable[[], float] = time.monotonic
    volumes: dict[str, Volume] = field(default_factory=dict, init=False)
    """The checkpoint folders that can become full, by host."""
    _under_way: list[Disturbance] = field(default_factory=list, init=False)

    @property
    def are_under_way(self) -> bool:
        """Return whether one lasts."""
        return bool(self._under_way)

    def begin(self, fault: Fault, cluster: SandboxCluster) -> None:
        """Let a fault come that leaves the hosts there; one that the machine refuses is told in the job's log.

        Raises:
            AssertionError: It takes hosts away.
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
                raise AssertionError(f"{fault.what} does not leave the hosts there")

    def go_on(self, cluster: SandboxCluster) -> None:
        """Do what is due now, for those that last."""
        now = self.clock()
        self._under_way = [each for each in self._under_way if self._lasts(each, cluster, now)]

    def close(self) -> None:
        """Let the volumes go."""
        for each in self.volumes.values():
            each.close()
        self.volumes.clear()

    def _cut(
        self, fault: Fault, hosts: Sequence[str], until: float, cluster: SandboxCluster
    ) -> None:
        if not self.has_network:
            self._refuse(fault, hosts, "instances share this machine's network here")
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
                "the checkpoint folder is no disk of its own; that takes mount namespaces, a CheckpointConfig and a "
                "fault that was put before the attempt began",
            )
            return
        self._last(FullDisk(volumes=volumes, until=until), cluster)

    def _refuse(self, fault: Fault, hosts: Sequence[str], reason: str) -> None:
        for host in hosts:
            self.say(host, f"fault {fault.id} ({fault.what}) has no effect: {reason}")

    def _last(self, disturbance: Disturbance, cluster: SandboxCluster) -> None:
        if self._lasts(disturbance, cluster, self.clock()):
            self._under_way.append(disturbance)

    def _lasts(self, disturbance: Disturbance, cluster: SandboxCluster, now: float) -> bool:
        try:
            return disturbance.go_on(cluster, now)
        except OSError as error:
            self.say(cluster.plan.instances[0].name, f"a fault has no effect: {error}")
            return False


@dataclass(slots=True, kw_only=True)
class Standstill:
    """All processes of some hosts stand still until a time.monotonic()."""

    hosts: Sequence[str]
    until: float

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Stop also what was forked meanwhile; let all go on at the end."""
        if now >= self.until:
            _send(cluster, self.hosts, signal.SIGCONT)
            return False
        _send(cluster, self.hosts, signal.SIGSTOP)
        return True


@dataclass(slots=True, kw_only=True)
class DutyCycle:
    """The processes of some hosts run `factor` of the time until a time.monotonic()."""

    hosts: Sequence[str]
    until: float
    factor: float
    _stands: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Stop or continue them as the cycle says."""
        lasts = now < self.until
        stands = lasts and now % CYCLE_S >= self.factor * CYCLE_S
        if stands != self._stands:
            self._stands = stands
            _send(cluster, self.hosts, signal.SIGSTOP if stands else signal.SIGCONT)
        return lasts


@dataclass(slots=True, kw_only=True)
class CutLink:
    """The cables of some instances carry nothing until a time.monotonic()."""

    cables: Sequence[int]
    until: float
    _is_cut: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Cut or mend when it is time; OSError when the kernel refuses."""
        lasts = now < self.until
        if lasts and not self._is_cut:
            inside.cut_cables(cluster.holder, self.cables)
            self._is_cut = True
        if not lasts:
            inside.mend_cables(cluster.holder, self.cables)
        return lasts


@dataclass(slots=True, kw_only=True)
class FullDisk:
    """Some checkpoint folders are full until a time.monotonic()."""

    volumes: Sequence[Volume]
    until: float
    _is_full: bool = field(default=False, init=False)

    def go_on(self, cluster: SandboxCluster, now: float) -> bool:
        """Fill or free them when it is time; OSError when the kernel refuses."""
        lasts = now < self.until
        for volume in self.volumes:
            if lasts and not self._is_full:
                volume.fill(cluster)
            if not lasts:
                volume.free(cluster)
        self._is_full = lasts
        return lasts


def _kill_rank(cluster: SandboxCluster, hosts: Sequence[str]) -> None:
    """Kill one training process of the first of the hosts that has any."""
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
