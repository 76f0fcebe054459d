"""Operations on processing jobs: create, describe, list, stop and delete."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.instance_storage import storage_problems
from sagemaker_engine.api.job_lists import list_jobs
from sagemaker_engine.api.request_rules import duplicates, is_folder_path
from sagemaker_engine.api.resources import check_image, check_input, check_output, check_role
from sagemaker_engine.api.starting import start_job, stop_job
from sagemaker_engine.api.training.rules import rejected_members
from sagemaker_engine.state.jobs import JobRow, ResourceKind, UnknownJobError
from sagemaker_engine.wire.errors import ResourceInUseError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call, Handler

KIND = ResourceKind.PROCESSING


@dataclass(frozen=True, slots=True)
class ProcessingJobs:
    """Handlers of the operations on processing jobs."""

    context: ApiContext

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateProcessingJob": self.create,
            "DescribeProcessingJob": self.describe,
            "ListProcessingJobs": self.list,
            "StopProcessingJob": self.stop,
            "DeleteProcessingJob": self.delete,
        }

    def create(self, call: Call) -> dict[str, Any]:
        """Store a job and start its runner.

        Raises:
            ValidationError: The request contradicts itself, or names a resource that does not exist.
            ResourceInUseError: A job with this name exists.
            ServiceError: ResourceLimitExceeded, if a quota is exceeded.
        """
        for problem in (*rejected_members(call.request), *_contradictions(call.request)):
            raise ValidationError(problem)
        _check_preconditions(self.context, call)
        name = call.request["ProcessingJobName"]
        now = self.context.clock()
        arn = start_job(
            self.context,
            KIND,
            name,
            call=call,
            request=_with_defaults(call.request),
            created_at=now,
            state={"ProcessingJobStatus": "InProgress", "LastModifiedTime": now},
        )
        return {"ProcessingJobArn": arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the description of a job.

        Raises:
            ValidationError: The job does not exist.
        """
        job = self._job(call, "Could not find requested job with name: {name}")
        return {
            **job.request,
            **job.state,
            "ProcessingJobArn": job.arn,
            "CreationTime": job.created_at,
            "LastModifiedTime": job.modified_at,
        }

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of summaries."""
        page = list_jobs(self.context.store, KIND, call.request, filters_status=True)
        return {
            "ProcessingJobSummaries": [_summary(job) for job in page.jobs],
            "NextToken": page.next_token,
        }

    def stop(self, call: Call) -> dict[str, Any]:
        """Stop a running job.

        Raises:
            ValidationError: The job does not exist, has ended or is already stopping.
        """
        job = self._job(call, "Could not find job to update with name {name}")
        stop_job(self.context, KIND, job.name)
        return {}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete a finished job. Its logs remain, as they do in CloudWatch.

        Raises:
            ValidationError: The job does not exist.
            ResourceInUseError: The job has not ended.
        """
        job = self._job(call, "Could not find requested job with name: {name}")
        if not job.is_terminal:
            raise ResourceInUseError(
                f"The request was rejected because the processing job is in status {job.status}. "
                "Only processing jobs in a terminal state can be deleted."
            )
        self.context.store.delete(KIND, job.name)
        folder = self.context.settings.job_folder(KIND, job.name)
        shutil.rmtree(folder / "instances", ignore_errors=True)
        return {}

    def _job(self, call: Call, not_found: str) -> JobRow:
        name = call.request["ProcessingJobName"]
        try:
            return self.context.store.get(KIND, name)
        except UnknownJobError as error:
            raise ValidationError(not_found.format(name=name)) from error


def _summary(job: JobRow) -> dict[str, Any]:
    return {
        **job.state,
        "ProcessingJobName": job.name,
        "ProcessingJobArn": job.arn,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
    }


def _contradictions(request: dict[str, Any]) -> Iterator[str]:
    inputs = request.get("ProcessingInputs", [])
    outputs = request.get("ProcessingOutputConfig", {}).get("Outputs", [])
    yield from duplicates("Input names", [entry["InputName"] for entry in inputs])
    yield from duplicates("Output names", [entry["OutputName"] for entry in outputs])
    for entry in inputs:
        given = [key for key in ("S3Input", "DatasetDefinition") if entry.get(key)]
        if len(given) != 1:
            yield (
                f"Processing input {entry['InputName']} must have exactly one of S3Input and "
                f"DatasetDefinition; got {' and '.join(given) or 'neither'}."
            )
    yield from storage_problems(request["ProcessingResources"]["ClusterConfig"])
    sources = [*(e.get("S3Input") for e in inputs), *(e.get("S3Output") for e in outputs)]
    local = [each.get("LocalPath") for each in sources if each]
    paths = [path for path in local if path is not None]
    yield from duplicates("Local paths", paths)
    for path in paths:
        if not is_folder_path(path):
            yield f"LocalPath must be an absolute path of a folder below /; got {path!r}."


def _check_preconditions(context: ApiContext, call: Call) -> None:
    request = call.request
    check_role(context, request["RoleArn"])
    check_image(context, request["AppSpecification"]["ImageUri"])
    for entry in request.get("ProcessingInputs", []):
        if "S3Input" in entry:
            uri, role = entry["S3Input"]["S3Uri"], request["RoleArn"]
            check_input(context, uri=uri, role_arn=role, region=call.region)
    for entry in request.get("ProcessingOutputConfig", {}).get("Outputs", []):
        if "S3Output" in entry:
            check_output(context, uri=entry["S3Output"]["S3Uri"])


def _with_defaults(request: dict[str, Any]) -> dict[str, Any]:
    condition = {"MaxRuntimeInSeconds": 86400, **request.get("StoppingCondition", {})}
    return {**request, "StoppingCondition": condition}
