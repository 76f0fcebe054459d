"""One attempt of a training job on new instances, in order: download, train, upload."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sagemaker_engine.channels.checkpoints import (
    MirroredFolder,
    Mirrors,
    NotInS3Error,
)
from sagemaker_engine.channels.locations import InputDataError, S3Location
from sagemaker_engine.faults.model import JobState
from sagemaker_engine.images.mpi_runtime import MpiRuntime, NoKeyError, install_mpi, make_key
from sagemaker_engine.images.sagemaker_libraries import lay_out_shims, packages_folder, wanted_shims
from sagemaker_engine.jobs import accelerators, container, inputs
from sagemaker_engine.jobs.artifacts import upload_outputs
from sagemaker_engine.jobs.debugger import (
    checkpoint_folder,
    checkpoint_path,
    config_files,
    debug_outputs,
    unsaved_collections,
)
from sagemaker_engine.jobs.disk_space import check_downloads
from sagemaker_engine.jobs.execution import Execution
from sagemaker_engine.jobs.failures import data_failure, s3_failure
from sagemaker_engine.jobs.host_faults import HostsLostError
from sagemaker_engine.jobs.instance_files import instance_files, path_inside
from sagemaker_engine.jobs.instances import ML_INSIDE, Ground, InstanceRequest
from sagemaker_engine.jobs.job import Job, JobError
from sagemaker_engine.jobs.launchers import LAUNCHERS, asked_launcher, may_start_mpirun
from sagemaker_engine.jobs.supervision import HOST_LOSSES, Ending, Outcome
from sagemaker_engine.jobs.volumes import Volume
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.channels.bandwidth import Line
    from sagemaker_engine.channels.pipe import PipeFeeder
    from sagemaker_engine.jobs.host_faults import AttemptFaults
    from sagemaker_engine.jobs.host_lines import HostLines
    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import HostPlan
    from sagemaker_engine.sandbox.cluster import SandboxCluster

log = logging.getLogger(__name__)

MIRROR_INTERVAL_S = 0.5
DOWNLOAD_POLL_S = 0.05


@dataclass(slots=True, kw_only=True)
class JobAttempt:
    """One start of a job's instances, with empty disks. The instances may train for at most `max_runtime_s` seconds."""

    job: Job
    order: Callable[[], Ending | None]
    ground: Ground
    runtime: ImageRuntime
    hosts: Sequence[HostPlan]
    on_line: Callable[[int, str], None]
    faults: AttemptFaults
    lines: HostLines
    max_runtime_s: float
    on_training: Callable[[], None] = lambda: None
    """Called immediately before the instances start."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the attempt adds to those of the job."""
    model_uri: str | None = field(default=None, init=False)
    """S3 URI of the model; None until it is uploaded."""
    _mirrors: Mirrors = field(default_factory=Mirrors, init=False)
    _downloaded: dict[str, float] = field(default_factory=dict, init=False)
    """Downloaded bytes per host."""

    def run(self) -> Outcome:
        """Run the attempt and return how the instances ended; their outputs are then in S3, unless hosts were lost.

        Raises:
            JobError: The data or the instances could not be provided, or S3 rejected the outputs.
        """
        try:
            with ExitStack() as stack:
                self.job.enter("Downloading")
                self.faults.pass_state(JobState.DOWNLOADING)
                feeders = self._download(stack)
                self._mirrors = self._restore_checkpoints()
                self._await_downloads()
                check_downloads(self.job, self.hosts, self._downloaded)
                self.faults.check()
                outcome = self._train(feeders)
            if outcome.ending in HOST_LOSSES:
                self._finish_mirrors(gone_at=outcome.gone_at)
                return outcome
            if unsaved := unsaved_collections(self.job, self.ground, self.hosts):
                self.job.log_line(self.hosts[0].name, unsaved)
            self.job.enter("Uploading")
            self.faults.pass_state(JobState.UPLOADING)
            self._finish_mirrors()
            self.faults.check()
            self.model_uri = self._upload()
        except HostsLostError as lost:
            self._mirrors.abandon({host.name for host in self.hosts})
            self._mirrors.finish()
            return Outcome(ending=lost.ending)
        finally:
            self.faults.close()
        return outcome

    def _download(self, stack: ExitStack) -> list[PipeFeeder]:
        more = config_files(self.job.request)
        for host in self.hosts:
            container.write_training_config(
                self.job, host, self.hosts, self.ground.interface, more=more
            )
        try:
            feeders, self._downloaded = inputs.provide_channels(
                self.job, self.hosts, ground=self.ground
            )
        except InputDataError as error:
            raise JobError(data_failure("Data download failed", error)) from error
        for feeder in feeders:
            feeder.start()
            stack.callback(feeder.stop)
        return feeders

    def _restore_checkpoints(self) -> Mirrors:
        config = self.job.request.get("CheckpointConfig")
        uplinks = {host.name: self.lines.uplink(host.name) for host in self.hosts}
        mirrors = self._output_mirrors(uplinks)
        if config:
            location = S3Location.parse(config["S3Uri"])
            for host in self.hosts:
                mirrors[host.name] = MirroredFolder(
                    checkpoint_folder(self.job, self.ground, host),
                    location,
                    self.job.objects,
                    seen_at=path_inside(
                        self.job, self.ground, host, str(checkpoint_path(self.job))
                    ),
                    files=instance_files(self.job, self.ground, host),
                    uplink=uplinks[host.name],
                    warn=partial(self.job.log_line, host.name),
                )
                try:
                    self._downloaded[host.name] += mirrors[host.name].restore()
                except InputDataError as error:
                    raise JobError(data_failure("Checkpoint download failed", error)) from error
        interval = MIRROR_INTERVAL_S * min(1.0, self.job.settings.time_scale)
        return Mirrors(
            mirrors,
            interval_s=max(0.05, interval),
            retrier=self.job.retrier,
            warn=self.job.log_line,
        )

    def _await_downloads(self) -> None:
        """Wait for the time that the downloads of the hosts take at their bandwidth. All hosts download in parallel.

        Raises:
            HostsLostError: A fault removes the hosts meanwhile.
        """
        downlinks = {host.name: self.lines.downlink(host.name) for host in self.hosts}
        left = {name: num_bytes for name, num_bytes in self._downloaded.items() if num_bytes > 0}
        since = time.monotonic()
        while left and self.order() is None:
            speeds = {name: downlinks[name].bytes_per_s() for name in left}
            if not any(speeds.values()):
                return
            self.faults.check()
            time.sleep(DOWNLOAD_POLL_S)
            now = time.monotonic()
            left = {
                name: rest
                for name, num_bytes in left.items()
                if (speed := speeds[name]) and (rest := num_bytes - speed * (now - since)) > 0
            }
            since = now

    def _output_mirrors(self, uplinks: Mapping[str, Line]) -> dict[str, MirroredFolder]:
        """Return the mirrored folders of Debugger's outputs; the keys are `<host> <output>`."""
        return {
            f"{host.name} {output.name}": MirroredFolder(
                output.folder(self.job, self.ground, host),
                output.location,
                self.job.objects,
                deletes=False,
                seen_at=path_inside(self.job, self.ground, host, output.path),
                files=instance_files(self.job, self.ground, host),
                uplink=uplinks[host.name],
                warn=partial(self.job.log_line, host.name),
            )
            for host in self.hosts
            for output in debug_outputs(self.job)
        }

    def _train(self, feeders: Sequence[PipeFeeder]) -> Outcome:
        def fault() -> str | None:
            found = (feeder.fault for feeder in feeders if feeder.fault is not None)
            return next((data_failure("Data download failed", each) for each in found), None)

        return Execution(
            job=self.job,
            runtime=self.runtime,
            ground=self.ground,
            hosts=self.hosts,
            request=self._instance,
            on_line=self._take_line,
            order=self.order,
            mirrors=self._mirrors,
            fault=fault,
            faults=self.faults,
            prepare=self._prepare_volumes,
            max_runtime_s=self.max_runtime_s,
        ).run()

    def _prepare_volumes(self, cluster: SandboxCluster) -> None:
        self.on_training()
        for host in self.hosts:
            if self._has_volume(host):
                self.faults.disturbances.volumes[host.name] = Volume.take_over(
                    cluster,
                    host=host.name,
                    path=str(checkpoint_path(self.job)),
                    folder=checkpoint_folder(self.job, self.ground, host),
                )

    def _has_volume(self, host: HostPlan) -> bool:
        """Return whether the host's checkpoint folder must be on a separate disk, for a `disk_full` fault."""
        able = self.ground.has_mounts and "CheckpointConfig" in self.job.request
        return able and self.faults.will_fill(host.name)

    def _take_line(self, time_ms: int, text: str) -> None:
        self.faults.moments.line(text)
        self.on_line(time_ms, text)

    def _instance(self, host: HostPlan, descriptor: int) -> InstanceRequest:
        folders = [(self.job.ml_folder(host.name), ML_INSIDE)]
        volumes = [str(checkpoint_path(self.job))] if self._has_volume(host) else []
        if "CheckpointConfig" in self.job.request and not volumes:
            folders.append(
                (checkpoint_folder(self.job, self.ground, host), str(checkpoint_path(self.job)))
            )
        folders += [
            (output.folder(self.job, self.ground, host), output.path)
            for output in debug_outputs(self.job)
            if output.is_mounted
        ]
        streamed, channels = self._channels(host)
        if not self.ground.has_overlay:
            folders += channels
        mpi = self._mpi_runtime(host)
        presented = self._accelerators(host)
        folders += [*mpi.folders, *presented]
        return InstanceRequest(
            host=host,
            command=container.training_command(self.job),
            environment={
                **self.environment,
                **container.training_environment(self.job, self.runtime, host),
            },
            descriptor=descriptor,
            folders=folders,
            volumes=volumes,
            copied=channels if self.ground.has_overlay else (),
            read_only=streamed,
            added=[*mpi.added, *self._shims(host)],
            programs=[*mpi.programs, *(f"{inside}/bin" for _, inside in presented)],
        )

    def _channels(self, host: HostPlan) -> tuple[list[tuple[Path, str]], list[tuple[Path, str]]]:
        """Return the mounts of a host's channels as (FastFile channels, File channels).

        Each channel is a pair (path on this machine, path inside the instance).
        """
        streamed: list[tuple[Path, str]] = []
        copied: list[tuple[Path, str]] = []
        names = inputs.streamed_channels(self.job)
        for name, folder in inputs.mounted_channels(self.job, host):
            pair = (folder, f"{ML_INSIDE}/input/data/{name}")
            (streamed if name in names else copied).append(pair)
        return streamed, copied

    def _accelerators(self, host: HostPlan) -> list[tuple[Path, str]]:
        """Return the mount of emulated accelerators, or an empty list.

        A log line is written if the instance type has accelerators, but this machine has no GPUs and the
        accelerators are not emulated.
        """
        if not accelerators.num_accelerators(host.instance_type) or shutil.which("nvidia-smi"):
            return []
        asks = accelerators.are_asked_for(self.job.request.get("Environment", {}))
        if not (asks and self.ground.has_mounts):
            self.job.log_line(host.name, accelerators.absence(host.instance_type))
            return []
        folder = accelerators.present(self.job.host_folder(host.name), host.instance_type)
        return [(folder, accelerators.INSIDE)]

    def _shims(self, host: HostPlan) -> list[tuple[Path, str]]:
        """Return the overlays that give an instance replacements of SageMaker's libraries.

        The list has at most one pair (folder with the replacements, folder that they overlay). It is empty if
        the image provides none of the libraries to this job, or has no torch.
        """
        wanted = wanted_shims(self.runtime.family, self.job.request.get("HyperParameters", {}))
        place = packages_folder((self.runtime.prefix, *self.runtime.layers))
        if not wanted or place is None:
            return []
        return [(lay_out_shims(wanted, self.job.host_folder(host.name) / "shims"), str(place))]

    def _mpi_runtime(self, host: HostPlan) -> MpiRuntime:
        """Return the host's MPI runtime, which is empty if none is installed.

        The runtime is installed if the job requests MPI. It is also installed if the job's own entry point could
        start mpirun and this machine supports overlay mounts and a network per instance.

        Raises:
            JobError: The image cannot create the SSH key of the instances.
        """
        flag = asked_launcher(self.job.request.get("HyperParameters", {}))
        is_asked = flag is not None and LAUNCHERS[flag].is_mpi
        can_start = self.ground.has_network and self.ground.has_overlay
        if not is_asked and not (can_start and may_start_mpirun(self.job.request)):
            return MpiRuntime()
        python = self.runtime.bin_folder / "python"
        try:
            key = make_key(self.job.settings.root / "mpi", python=python)
        except NoKeyError as error:
            raise JobError(f"ClientError: {error}") from error
        return install_mpi(self.job.host_folder(host.name), python=python, key=key)

    def _finish_mirrors(self, *, gone_at: Mapping[str, float] | None = None) -> None:
        """Upload the last checkpoints and Debugger outputs. Errors are only logged.

        A lost host uploads until its time in `gone_at`.
        """
        try:
            self._mirrors.finish(gone_at=gone_at)
        except NotInS3Error as error:
            log.error("the last checkpoints are not in S3: %s", error)  # noqa: TRY400  # an outage, not a bug

    def _upload(self) -> str:
        """Upload the model and the output data at the first host's bandwidth; return the model's URI.

        Raises:
            HostsLostError: A fault removes the hosts meanwhile.
            JobError: S3 rejects the upload.
        """
        line = self.lines.uplink(self.hosts[0].name)
        carry = partial(line.carry, meanwhile=self.faults.check)
        try:
            return upload_outputs(self.job, self.ground, self.hosts, carry=carry)
        except S3Error as error:
            raise JobError(s3_failure("Artifact upload failed", error)) from error
