"""Operations on training jobs: create, describe, list, stop, update and delete."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.job_lists import list_jobs
from sagemaker_engine.api.resources import (
    check_image,
    check_input,
    check_model_parallel,
    check_output,
    check_role,
)
from sagemaker_engine.api.starting import start_job, stop_job
from sagemaker_engine.api.training.debugger_rules import debugger_problems
from sagemaker_engine.api.training.rules import check_training_request
from sagemaker_engine.api.training.warm_pool import change_retention, take_pool, warm_pool_status
from sagemaker_engine.jobs.life_cycle import MESSAGES
from sagemaker_engine.jobs.plan_capacity import PENDING_SINCE
from sagemaker_engine.plans.use import check_plans, plan_arn_of
from sagemaker_engine.state.jobs import JobRow, ResourceKind, UnknownJobError
from sagemaker_engine.wire.errors import ResourceInUseError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call, Handler

KIND = ResourceKind.TRAINING
_STARTING = {"Status": "Starting", "StatusMessage": "Starting the training job"}
_PENDING = {"Status": "Pending", "StatusMessage": MESSAGES["Pending"]}


@dataclass(frozen=True, slots=True)
class TrainingJobs:
    """Handlers of the operations on training jobs."""

    context: ApiContext

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateTrainingJob": self.create,
            "DescribeTrainingJob": self.describe,
            "ListTrainingJobs": self.list,
            "StopTrainingJob": self.stop,
            "UpdateTrainingJob": self.update,
            "DeleteTrainingJob": self.delete,
        }

    def create(self, call: Call) -> dict[str, Any]:
        """Store a job and start its runner.

        Raises:
            ValidationError: The request contradicts itself, or names a resource that does not exist.
            ResourceNotFoundError: The training plan does not exist.
            ResourceInUseError: A job with this name exists.
            ServiceError: ResourceLimitExceeded, if a quota is exceeded.
        """
        check_training_request(call.request)
        name = call.request["TrainingJobName"]
        check_training_preconditions(self.context, call.request, region=call.region)
        now = self.context.clock()
        first = _STARTING if plan_arn_of(call.request) is None else _PENDING
        arn = start_job(
            self.context,
            KIND,
            name,
            call=call,
            request=_with_defaults(call.request),
            created_at=now,
            state={
                "TrainingJobStatus": "InProgress",
                "SecondaryStatus": first["Status"],
                "SecondaryStatusTransitions": [{**first, "StartTime": now}],
                "LastModifiedTime": now,
                PENDING_SINCE: self.context.plan_clock.now(),
            },
        )
        take_pool(self.context.store, name, call.request, now=now)
        return {"TrainingJobArn": arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the description of a job.

        Raises:
            ValidationError: The job does not exist.
        """
        return describe_training_job(self._job(call), now=self.context.clock())

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of summaries.

        As documented, StatusEquals filters a page after its jobs were selected. A page may therefore be short or empty
        and still have a NextToken.
        """
        page = list_jobs(self.context.store, KIND, call.request, filters_status=False)
        now = self.context.clock()
        wanted = [job for job in page.jobs if _passes(job, call.request, now=now)]
        return {
            "TrainingJobSummaries": [_summary(job, now=now) for job in wanted],
            "NextToken": page.next_token,
        }

    def stop(self, call: Call) -> dict[str, Any]:
        """Stop a running job.

        Raises:
            ValidationError: The job does not exist, has ended or is already stopping.
        """
        stop_job(self.context, KIND, self._job(call).name)
        return {}

    def update(self, call: Call) -> dict[str, Any]:
        """Change a job's profiler settings, its remote debugging, or the keep-alive period of its warm pool.

        Raises:
            ValidationError: The job does not exist, its state does not allow the change, or the new profiler
                settings are invalid.
        """
        job = self._job(call)
        request = call.request
        resources = request.get("ResourceConfig")
        if resources is None and job.status != "InProgress":
            raise ValidationError(
                f"The request was rejected because the training job is in status {job.status}."
            )

        for problem in debugger_problems({**_debugger_of(job.request), **request}):
            raise ValidationError(problem)

        def change(stored: dict[str, Any]) -> None:
            for member in ("ResourceConfig", "ProfilerConfig", "RemoteDebugConfig"):
                if member in request:
                    stored[member] = {**stored.get(member, {}), **request[member]}
            if "ProfilerRuleConfigurations" in request:
                stored["ProfilerRuleConfigurations"] = request["ProfilerRuleConfigurations"]

        if resources is not None:
            period_s = int(resources.get("KeepAlivePeriodInSeconds", 0))
            change_retention(self.context.store, job, period_s, now=self.context.clock())
        self.context.store.update_request(KIND, job.name, change)
        return {"TrainingJobArn": job.arn}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete a finished job. Its logs remain, as they do in CloudWatch.

        Raises:
            ValidationError: The job does not exist.
            ResourceInUseError: The job has not ended, or retains a warm pool.
        """
        job = self._job(call)
        pool = warm_pool_status(job, now=self.context.clock())
        if not job.is_terminal or (pool is not None and pool["Status"] == "Available"):
            held = f"is in status {job.status}" if not job.is_terminal else "retains a warm pool"
            raise ResourceInUseError(
                f"The request was rejected because the training job {held}. Only training jobs in "
                "a terminal state that do not retain a warm pool can be deleted."
            )
        self.context.store.delete(KIND, job.name)
        folder = self.context.settings.job_folder(KIND, job.name)
        shutil.rmtree(folder / "instances", ignore_errors=True)
        return {}

    def _job(self, call: Call) -> JobRow:
        try:
            return self.context.store.get(KIND, call.request["TrainingJobName"])
        except UnknownJobError as error:
            raise ValidationError("Requested resource not found.") from error


def describe_training_job(job: JobRow, *, now: float) -> dict[str, Any]:
    """Return the members of DescribeTrainingJob's response at `now` (epoch seconds)."""
    output = job.request["OutputDataConfig"]["S3OutputPath"].rstrip("/")
    artifacts = {"S3ModelArtifacts": f"{output}/{job.name}/output/model.tar.gz"}
    return {
        "ModelArtifacts": artifacts,
        **job.request,
        **_selected(job.request),
        "OutputDataConfig": {"KmsKeyId": "", **job.request["OutputDataConfig"]},
        **job.state,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
        "WarmPoolStatus": warm_pool_status(job, now=now),
        "ProfilingStatus": "Enabled" if _is_profiled(job.request) else "Disabled",
    }


def _selected(request: dict[str, Any]) -> dict[str, Any]:
    """Return the member ResourceConfig with the selected instances; empty without InstancePreferences.

    The first preference is selected, because the engine has capacity for all. A preference without
    a count uses the count of the ResourceConfig.
    """
    resources = request.get("ResourceConfig", {})
    preferences = resources.get("InstancePreferences")
    if not preferences:
        return {}
    count = preferences[0].get("InstanceCount", resources.get("InstanceCount", 1))
    chosen = {
        "SelectedInstanceType": preferences[0]["InstanceType"],
        "SelectedInstanceCount": count,
    }
    return {"ResourceConfig": {**resources, **chosen}}


def _is_profiled(request: dict[str, Any]) -> bool:
    config = request.get("ProfilerConfig") or {}
    return bool(config) and not config.get("DisableProfiler")


def _debugger_of(request: dict[str, Any]) -> dict[str, Any]:
    members = ("DebugHookConfig", "DebugRuleConfigurations")
    return {key: request[key] for key in members if key in request}


def _summary(job: JobRow, *, now: float) -> dict[str, Any]:
    described = {
        **job.state,
        "LastModifiedTime": job.modified_at,
        "WarmPoolStatus": warm_pool_status(job, now=now),
    }
    return {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created_at,
        "TrainingPlanArn": job.request.get("ResourceConfig", {}).get("TrainingPlanArn"),
        **described,
    }


def _passes(job: JobRow, request: dict[str, Any], *, now: float) -> bool:
    pool = (warm_pool_status(job, now=now) or {}).get("Status")
    plan = job.request.get("ResourceConfig", {}).get("TrainingPlanArn")
    has = {
        "StatusEquals": job.status,
        "WarmPoolStatusEquals": pool,
        "TrainingPlanArnEquals": plan,
    }
    return all(request.get(name, value) == value for name, value in has.items())


def check_training_preconditions(
    context: ApiContext, request: dict[str, Any], *, region: str
) -> None:
    """Check that a training job's role, image, input data, training plan and buckets exist.

    Raises:
        ValidationError: The training plan does not fit the job, or one of the other resources does not exist.
        ResourceNotFoundError: The plan does not exist.
    """
    check_role(context, request["RoleArn"])
    image = request.get("AlgorithmSpecification", {}).get("TrainingImage")
    if image is not None:
        check_image(context, image)
        check_model_parallel(context, image, request.get("HyperParameters", {}))
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        if source is not None:
            uri, role = source["S3Uri"], request["RoleArn"]
            check_input(context, uri=uri, role_arn=role, region=region)
    check_plans(context.plans, request, now=context.plan_clock.now())
    check_output(context, uri=request["OutputDataConfig"]["S3OutputPath"])
    if "CheckpointConfig" in request:
        check_output(context, uri=request["CheckpointConfig"]["S3Uri"])
    for member in ("DebugHookConfig", "ProfilerConfig", "TensorBoardOutputConfig"):
        if uri := (request.get(member) or {}).get("S3OutputPath"):
            check_output(context, uri=uri)


def _with_defaults(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request with the default values that Describe shows for omitted members."""
    filled = {key: value for key, value in request.items() if key != "Tags"}
    filled["StoppingCondition"] = {
        "MaxRuntimeInSeconds": 86400,
        **filled.get("StoppingCondition", {}),
    }
    filled["OutputDataConfig"] = {"CompressionType": "GZIP", **filled["OutputDataConfig"]}
    for flag in (
        "EnableNetworkIsolation",
        "EnableInterContainerTrafficEncryption",
        "EnableManagedSpotTraining",
    ):
        filled.setdefault(flag, False)
    if "InputDataConfig" in filled:
        filled["InputDataConfig"] = [
            {"CompressionType": "None", "RecordWrapperType": "None", **channel}
            for channel in filled["InputDataConfig"]
        ]
    return {**filled, "Tags": request.get("Tags", [])}
