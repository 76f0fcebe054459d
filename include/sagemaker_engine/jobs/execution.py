"""Execution of the instances of a training or processing job, from their start to their end."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sagemaker_engine.jobs.disk_space import DiskSpace, volume_of
from sagemaker_engine.jobs.host_metrics import FILE_NAME, HostMetrics, volume_bytes
from sagemaker_engine.jobs.inputs import channel_folder, streamed_channels
from sagemaker_engine.jobs.instances import make_cluster
from sagemaker_engine.jobs.logs import LogFile, LogPump, next_epoch
from sagemaker_engine.jobs.supervision import Ending, Outcome, Supervision
from sagemaker_engine.sandbox import capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.channels.checkpoints import Mirrors
    from sagemaker_engine.jobs.host_faults import AttemptFaults
    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.instances import Ground, InstanceRequest
    from sagemaker_engine.jobs.job import HostPlan, Job
    from sagemaker_engine.sandbox.cluster import SandboxCluster

log = logging.getLogger(__name__)

LAST_LINES_S = 10.0
"""Seconds that the logs of ended instances may take to arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of a job's instances.

    - `request`: returns an instance's settings, given its host and the file descriptor of its log.
    - `on_line`: receives (epoch milliseconds, text) of every line of every log.
    - `order`: returns the reason to end the job, or None.
    - `mirrors`: folders that are uploaded to S3 while the instances run.
    - `fault`: returns the FailureReason if the job's data is no longer available, otherwise None.
    - `faults`: simulated faults of the hosts.
    - `prepare`: called with the instances before anything runs in them.
    - `max_runtime_s`: limit of the run time.
    """

    job: Job
    runtime: ImageRuntime
    ground: Ground
    hosts: Sequence[HostPlan]
    request: Callable[[HostPlan, int], InstanceRequest]
    on_line: Callable[[int, str], None]
    order: Callable[[], Ending | None]
    mirrors: Mirrors
    max_runtime_s: float
    fault: Callable[[], str | None] = lambda: None
    faults: AttemptFaults | None = None
    prepare: Callable[[SandboxCluster], None] = lambda _: None

    def run(self) -> Outcome:
        """Create the instances, run them to their end and return how they ended.

        Raises SandboxError if the machine cannot create them.
        """
        pump = LogPump()
        logs = self._open_logs()
        descriptors = {name: pump.add(each) for name, each in logs.items()}
        pump.start()
        try:
            cluster = make_cluster(
                self.job,
                self.runtime,
                self.ground,
                [self.request(host, descriptors[host.name]) for host in self.hosts],
            )
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
        with closing(cluster):
            self.prepare(cluster)
            self.mirrors.start()
            self.job.enter("Training")
            cluster.start()
            if self.faults is not None:
                self.faults.begin_training(self.mirrors)
            metrics = self._host_metrics(cluster)
            space = self._disk_space()
            metrics.start()
            space.start()
            try:
                outcome = Supervision(
                    cluster=cluster,
                    order=lambda: (
                        Ending.FAULT if self._fault(pump) or space.fault else self.order()
                    ),
                    deadline=time.monotonic() + self.max_runtime_s,
                    time_scale=self.job.settings.time_scale,
                    on_stopping=self._note_stopping,
                    faults=self.faults,
                ).run()
            finally:
                metrics.finish()
                space.finish()
        pump.join(timeout=LAST_LINES_S)
        fault = self._fault(pump) or space.fault
        if fault is not None and outcome.ending in {Ending.FAULT, Ending.COMPLETED}:
            return Outcome(ending=Ending.FAULT, fault=fault)
        if outcome.failure is not None:
            return replace(outcome, last_line=logs[outcome.failure.instance].last_line)
        return outcome

    def _host_metrics(self, cluster: SandboxCluster) -> HostMetrics:
        return HostMetrics(
            cluster,
            folders={each.name: self.job.host_folder(each.name) for each in self.hosts},
            to=self.job.folder / FILE_NAME,
            volume_bytes=volume_bytes(self.job.request),
            time_scale=self.job.settings.time_scale,
        )

    def _disk_space(self) -> DiskSpace:
        names = streamed_channels(self.job)
        return DiskSpace(
            {each.name: self.job.host_folder(each.name) for each in self.hosts},
            volumes={each.name: volume_of(self.job.request, each) for each in self.hosts},
            streamed=[
                channel_folder(self.job, host, name, ground=self.ground)
                for host in self.hosts
                for name in names
            ],
            time_scale=self.job.settings.time_scale,
        )

    def _fault(self, pump: LogPump) -> str | None:
        return self.fault() or pump.fault

    def _open_logs(self) -> dict[str, LogFile]:
        folder = self.job.folder / "logs"
        epoch = next_epoch(folder, time.time())
        logs = {
            host.name: LogFile(folder, host.name, epoch=epoch, on_line=self.on_line)
            for host in self.hosts
        }
        for loss in capabilities.losses(self.ground.features):
            logs[self.hosts[0].name].add_line(loss)
        return logs

    def _note_stopping(self, ending: Ending) -> None:
        log.info("the job is being ended: %s", ending)
        if ending not in {Ending.MAX_RUNTIME_EXCEEDED, Ending.FAULT}:
            self.job.enter("Stopping")
