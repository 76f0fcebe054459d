"""Life cycle of a processing job, in order: inputs, run, outputs, final status."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine.channels.checkpoints import MirroredFolder, Mirrors
from sagemaker_engine.channels.listing import (
    channel_files,
    files_of_host,
)
from sagemaker_engine.channels.locations import InputDataError, S3Location
from sagemaker_engine.channels.placement import place_files
from sagemaker_engine.jobs.container import resource_config
from sagemaker_engine.jobs.disk_space import check_downloads
from sagemaker_engine.jobs.execution import Execution
from sagemaker_engine.jobs.failures import ABANDONED, data_failure, s3_failure
from sagemaker_engine.jobs.image_supply import find_runtime, supply
from sagemaker_engine.jobs.instance_files import (
    failure_reason,
    instance_files,
    output_text,
    path_inside,
)
from sagemaker_engine.jobs.instances import (
    ML_INSIDE,
    Ground,
    InstanceRequest,
    survey,
)
from sagemaker_engine.jobs.job import Job, JobError, plan_hosts
from sagemaker_engine.jobs.limits import Limits
from sagemaker_engine.jobs.supervision import Ending, Outcome
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import HostPlan

log = logging.getLogger(__name__)

PROCESSING_INSIDE = "/opt/ml/processing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingRun:
    """One run of a processing job. `order` returns the reason to end the job, or None."""

    job: Job
    order: Callable[[], Ending | None]
    ground: Ground
    runtime: ImageRuntime
    hosts: list[HostPlan]

    @classmethod
    def prepare(cls, job: Job, order: Callable[[], Ending | None]) -> ProcessingRun:
        """Return the run of a job.

        Raises:
            JobError: No runtime emulates its image, or the engine image cannot be built.
        """
        runtime = find_runtime(job, job.request["AppSpecification"]["ImageUri"])
        supply(job, runtime, order)
        job.request["EnableNetworkIsolation"] = job.request.get("NetworkConfig", {}).get(
            "EnableNetworkIsolation", False
        )
        ground = survey(job)
        resources = job.request["ProcessingResources"]["ClusterConfig"]
        names = ground.host_names(resources["InstanceCount"])
        return cls(
            job=job,
            order=order,
            ground=ground,
            runtime=runtime,
            hosts=plan_hosts(resources, names=names),
        )

    def run(self) -> None:
        """Run the job to a final status.

        Raises:
            JobError: Its data or its instances could not be provided, or its outputs could not be uploaded.
        """
        for host in self.hosts:
            self._write_config(host)
        try:
            self._provide_inputs()
        except InputDataError as error:
            raise JobError(data_failure("Data download failed", error)) from error
        continuous, at_end = self._mirrored("Continuous"), self._mirrored("EndOfJob")
        mirrors = Mirrors(
            continuous,
            interval_s=0.5 * min(1.0, self.job.settings.time_scale),
            retrier=self.job.retrier,
            warn=self.job.log_line,
        )
        outcome = self._process(mirrors)
        try:
            mirrors.finish()
            for name, each in at_end.items():
                self.job.retrier.ask(partial(each.sync, final=True), what=name)
        except S3Error as error:
            raise JobError(s3_failure("Output upload failed", error)) from error
        self._finish(outcome)

    def _write_config(self, host: HostPlan) -> None:
        config = self.job.ml_folder(host.name) / "config"
        config.mkdir(parents=True, exist_ok=True)
        (self.job.ml_folder(host.name) / "output").mkdir(exist_ok=True)
        request = {"ProcessingJobArn": self.job.arn, **self.job.request}
        (config / "processingjobconfig.json").write_text(json.dumps(request), encoding="utf-8")
        resources = resource_config(host, self.hosts, self.ground.interface)
        (config / "resourceconfig.json").write_text(json.dumps(resources), encoding="utf-8")

    def _provide_inputs(self) -> None:
        downloaded = dict.fromkeys((host.name for host in self.hosts), 0)
        for number, each in enumerate(self.job.request.get("ProcessingInputs", [])):
            channel = _as_channel(each)
            files = channel_files(channel, self.job.objects)
            for host in self.hosts:
                share = files_of_host(files, channel, host=host, hosts=self.hosts)
                folder = self._input_folder(host, number, each)
                downloaded[host.name] += place_files(
                    share or [], folder, self.job.objects, link=self.ground.has_overlay
                )
        check_downloads(self.job, self.hosts, downloaded)

    def _input_folder(self, host: HostPlan, number: int, each: dict[str, Any]) -> Path:
        if self.ground.has_overlay:
            return self.job.host_folder(host.name) / "inputs" / str(number)
        return self._folder(host, each["S3Input"]["LocalPath"])

    def _folder(self, host: HostPlan, path: str) -> Path:
        """Return the path on this machine that corresponds to `path`, a folder under /opt/ml on the instance.

        Raises:
            JobError: The path is not under /opt/ml.
        """
        if not Path(path).is_relative_to(ML_INSIDE):
            raise JobError(f"ClientError: LocalPath {path!r} must begin with {PROCESSING_INSIDE}/")
        return self.job.ml_folder(host.name) / Path(path).relative_to(ML_INSIDE)

    def _outputs(self) -> Iterator[dict[str, Any]]:
        config = self.job.request.get("ProcessingOutputConfig", {})
        for each in config.get("Outputs", []):
            if "S3Output" in each:
                yield each["S3Output"]

    def _mirrored(self, mode: str) -> dict[str, MirroredFolder]:
        """Create and return the folders of all outputs with this upload mode; the keys are `<host> <path>`."""
        return {
            f"{host.name} {output['LocalPath']}": MirroredFolder(
                self._folder(host, output["LocalPath"]),
                S3Location.parse(output["S3Uri"]),
                self.job.objects,
                deletes=False,
                seen_at=path_inside(self.job, self.ground, host, output["LocalPath"]),
                files=instance_files(self.job, self.ground, host),
                warn=partial(self.job.log_line, host.name),
            )
            for output in self._outputs()
            if output["S3UploadMode"] == mode
            for host in self.hosts
        }

    def _process(self, mirrors: Mirrors) -> Outcome:
        limits = Limits.of(self.job.request, created_at=self.job.created_at)
        return Execution(
            job=self.job,
            runtime=self.runtime,
            ground=self.ground,
            hosts=self.hosts,
            request=self._instance,
            on_line=lambda *_: None,  # Processing jobs have no metrics.
            order=self.order,
            mirrors=mirrors,
            max_runtime_s=limits.max_runtime_s,
        ).run()

    def _instance(self, host: HostPlan, descriptor: int) -> InstanceRequest:
        app = self.job.request["AppSpecification"]
        command = [*app.get("ContainerEntrypoint", []), *app.get("ContainerArguments", [])]
        if not command:
            raise JobError(
                f"ClientError: image {app['ImageUri']!r} has no default entry point here; "
                "set AppSpecification.ContainerEntrypoint"
            )
        copied = []
        if self.ground.has_overlay:
            copied = [
                (self._input_folder(host, number, each), each["S3Input"]["LocalPath"])
                for number, each in enumerate(self.job.request.get("ProcessingInputs", []))
            ]
        return InstanceRequest(
            host=host,
            command=command,
            environment={
                "PROCESSING_JOB_NAME": self.job.name,
                "PROCESSING_JOB_ARN": self.job.arn,
                "CURRENT_HOST": host.name,
                **self.job.request.get("Environment", {}),
            },
            descriptor=descriptor,
            folders=[(self.job.ml_folder(host.name), ML_INSIDE)],
            copied=copied,
        )

    def _finish(self, outcome: Outcome) -> None:
        message = output_text(self.job, self.ground, self.hosts[0], "message")
        members = {"ExitMessage": message} if message else {}
        match outcome.ending:
            case Ending.COMPLETED:
                self.job.finish("Completed", **members)
            case Ending.STOPPED:
                self.job.finish("Stopped", **members)
            case Ending.MAX_RUNTIME_EXCEEDED:
                reason = "ClientError: The processing job exceeded MaxRuntimeInSeconds"
                self.job.finish("Stopped", reason=reason, **members)
            case Ending.ABANDONED:
                self.job.finish("Failed", reason=ABANDONED, **members)
            case Ending.FAULT:
                self.job.finish("Failed", reason=outcome.fault, **members)
            case Ending.FAILED:
                reason = failure_reason(self.job, self.ground, self.hosts, outcome)
                self.job.finish("Failed", reason=reason, **members)
            case (
                Ending.INTERRUPTED
                | Ending.HOST_FAILURE
                | Ending.WINDOW_ENDED
                | Ending.MAX_WAIT_TIME_EXCEEDED
            ):
                raise AssertionError(f"{outcome.ending} applies to training jobs only")


def _as_channel(each: dict[str, Any]) -> dict[str, Any]:
    """Return a processing input in the form of a training channel.

    Raises:
        JobError: The input is not an S3Input, or its S3InputMode is not File.
    """
    source = each.get("S3Input")
    if source is None:
        raise JobError(
            f"ClientError: processing input {each['InputName']!r} is not an S3Input; "
            "the local engine supports no other source"
        )
    if source.get("S3InputMode", "File") != "File":
        raise JobError(
            f"ClientError: processing input {each['InputName']!r} requests S3InputMode "
            f"{source['S3InputMode']}; the local engine supports File only"
        )
    return {"ChannelName": each["InputName"], "DataSource": {"S3DataSource": source}}
