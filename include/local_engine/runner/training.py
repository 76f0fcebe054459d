"""The life of a training job, read downwards: download, train, upload, end."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.local_engine.channels.checkpoints import (
    MirroredFolder,
    MirrorThread,
    NotInS3Error,
)
from include.local_engine.channels.locations import DataError, S3Location
from include.local_engine.runner import artifacts, container, inputs
from include.local_engine.runner.execution import Execution
from include.local_engine.runner.failures import (
    ABANDONED,
    algorithm_error,
    data_failure,
    s3_failure,
)
from include.local_engine.runner.images import UnknownImageError, resolve_image
from include.local_engine.runner.instances import (
    ML_INSIDE,
    Ground,
    InstanceRequest,
    survey,
)
from include.local_engine.runner.job import Job, JobError, plan_hosts
from include.local_engine.runner.metrics import MetricScraper
from include.local_engine.runner.supervision import Ending, Outcome
from include.local_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from include.local_engine.channels.pipe import PipeFeeder
    from include.local_engine.runner.images import ImageRuntime
    from include.local_engine.runner.job import HostPlan

log = logging.getLogger(__name__)

CHECKPOINTS_INSIDE = "/opt/ml/checkpoints"
MIRROR_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One training job being run. `order` tells whether somebody wants it to end."""

    job: Job
    order: Callable[[], Ending | None]
    ground: Ground
    runtime: ImageRuntime
    hosts: list[HostPlan]
    metrics: MetricScraper

    @classmethod
    def prepare(cls, job: Job, order: Callable[[], Ending | None]) -> TrainingRun:
        """Return the run of a job.

        Raises:
            JobError: Its image has no stand-in here.
        """
        algorithm = job.request["AlgorithmSpecification"]
        try:
            runtime = resolve_image(algorithm.get("TrainingImage") or algorithm["AlgorithmName"])
        except UnknownImageError as error:
            raise JobError(f"ClientError: {error}") from error
        ground = survey(job)
        resources = job.request["ResourceConfig"]
        count = len(plan_hosts(resources))
        return cls(
            job=job,
            order=order,
            ground=ground,
            runtime=runtime,
            hosts=plan_hosts(resources, names=ground.host_names(count)),
            metrics=MetricScraper(
                algorithm.get("MetricDefinitions", []), job.folder / "metrics.jsonl"
            ),
        )

    def run(self) -> None:
        """Run the job to its end, whichever it is.

        Fails with JobError: its data or its instances could not be provided.
        """
        with ExitStack() as stack:
            self.job.enter("Downloading")
            feeders = self._download(stack)
            mirrors = self._restore_checkpoints()
            outcome = self._train(mirrors, feeders)
        self._upload(outcome, mirrors)

    def _download(self, stack: ExitStack) -> list[PipeFeeder]:
        for host in self.hosts:
            container.write_training_config(self.job, host, self.hosts, self.ground.interface)
        try:
            feeders = inputs.provide_channels(self.job, self.hosts, link=self.ground.has_overlay)
        except DataError as error:
            raise JobError(data_failure("Data download failed", error)) from error
        for feeder in feeders:
            feeder.start()
            stack.callback(feeder.stop)
        return feeders

    def _restore_checkpoints(self) -> MirrorThread:
        config = self.job.request.get("CheckpointConfig")
        mirrors = {}
        if config:
            location = S3Location.parse(config["S3Uri"])
            for host in self.hosts:
                folder = self._checkpoint_folder(host)
                mirrors[host.name] = MirroredFolder(folder, location, self.job.objects)
                try:
                    mirrors[host.name].restore()
                except DataError as error:
                    raise JobError(data_failure("Checkpoint download failed", error)) from error
        interval = MIRROR_INTERVAL_S * min(1.0, self.job.settings.time_scale)
        return MirrorThread(
            mirrors,
            interval_s=max(0.05, interval),
            patience=self.job.patience,
            tell=self.job.say,
        )

    def _checkpoint_folder(self, host: HostPlan) -> Path:
        if self.ground.has_mounts:
            return self.job.host_folder(host.name) / "checkpoints"
        return self.job.ml_folder(host.name) / self._checkpoint_path.relative_to(ML_INSIDE)

    @property
    def _checkpoint_path(self) -> Path:
        config = self.job.request.get("CheckpointConfig", {})
        return Path(config.get("LocalPath", CHECKPOINTS_INSIDE))

    def _train(self, mirrors: MirrorThread, feeders: Sequence[PipeFeeder]) -> Outcome:
        def fault() -> str | None:
            found = (feeder.fault for feeder in feeders if feeder.fault is not None)
            return next((data_failure("Data download failed", each) for each in found), None)

        return Execution(
            job=self.job,
            runtime=self.runtime,
            ground=self.ground,
            hosts=self.hosts,
            request=self._instance,
            on_line=self.metrics.line,
            order=self.order,
            mirrors=mirrors,
            fault=fault,
        ).run()

    def _instance(self, host: HostPlan, descriptor: int) -> InstanceRequest:
        folders = [(self.job.ml_folder(host.name), ML_INSIDE)]
        if "CheckpointConfig" in self.job.request:
            folders.append((self._checkpoint_folder(host), str(self._checkpoint_path)))
        return InstanceRequest(
            host=host,
            command=container.training_command(self.job, self.runtime),
            environment=container.training_environment(self.job, self.runtime, host),
            descriptor=descriptor,
            folders=folders,
            copied=[
                (folder, f"{ML_INSIDE}/input/data/{name}")
                for name, folder in inputs.linked_channels(self.job, host)
            ],
        )

    def _upload(self, outcome: Outcome, mirrors: MirrorThread) -> None:
        self.job.enter("Uploading")
        members: dict[str, Any] = {"FinalMetricDataList": self.metrics.final()}
        try:
            mirrors.finish()
        except NotInS3Error as error:
            log.error("the last checkpoints are not in S3: %s", error)  # noqa: TRY400  # told
        try:
            model_uri = self._upload_artifacts()
        except S3Error as error:
            raise JobError(s3_failure("Artifact upload failed", error)) from error
        match outcome.ending:
            case Ending.COMPLETED | Ending.STOPPED | Ending.MAX_RUNTIME_EXCEEDED:
                status = "Completed" if outcome.ending is Ending.COMPLETED else "Stopped"
                members["ModelArtifacts"] = {"S3ModelArtifacts": model_uri}
                self.job.finish(status, secondary=outcome.ending.value, **members)
            case Ending.ABANDONED:
                self.job.finish("Failed", reason=ABANDONED, **members)
            case Ending.FAULT:
                self.job.finish("Failed", reason=outcome.fault, **members)
            case Ending.FAILED:
                self.job.finish("Failed", reason=self._failure_reason(outcome), **members)

    def _upload_artifacts(self) -> str:
        config = self.job.request["OutputDataConfig"]
        target = S3Location.parse(config["S3OutputPath"]).join(f"{self.job.name}/output")
        models = [self.job.ml_folder(host.name) / "model" for host in self.hosts]
        outputs = [self.job.ml_folder(host.name) / "output" / "data" for host in self.hosts]
        objects, patience = self.job.objects, self.job.patience
        if config.get("CompressionType") == "NONE":
            artifacts.upload_tree(models, target.join("model"), objects, patience=patience)
            artifacts.upload_tree(outputs, target.join("data"), objects, patience=patience)
            return target.join("model").uri + "/"
        scratch = self.job.folder / "scratch"
        archive = partial(
            artifacts.upload_archive, objects=objects, scratch=scratch, patience=patience
        )
        archive(models, target.join("model.tar.gz"))
        if artifacts.merged_files(outputs):
            archive(outputs, target.join("output.tar.gz"))
        return target.join("model.tar.gz").uri

    def _failure_reason(self, outcome: Outcome) -> str:
        if outcome.failure is None:
            raise AssertionError("a failed outcome names the instance that failed")
        folder = self.job.ml_folder(outcome.failure.instance) / "output"
        return algorithm_error(outcome.failure, folder / "failure", last_line=outcome.last_line)
