"""Creates, describes, stops and tags SageMaker jobs; every refusal becomes a typed error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from distributed_training.hooks.job_kinds import JOB_APIS, KILLED_TAG, JobKind
from include.errors import TrainingRunError
from include.sagemaker_api.failures import is_name_taken, is_unknown_job, service_error
from include.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed_training.hooks.aws_clients import AwsClients


class NameTakenError(TrainingRunError):
    """A job of this name exists already: somebody was faster, re-attach to it."""


class SageMakerJobs:
    """The jobs of one kind in one account and region."""

    def __init__(self, clients: AwsClients, kind: JobKind) -> None:
        self._client = clients.client("sagemaker")
        self._api = JOB_APIS[kind]

    def describe(self, name: str) -> JobSnapshot | None:
        """Return the job as it is now; None when there is no such job.

        Raises:
            TrainingRunError: the service refused (access, throttling, ...).
        """
        call = getattr(self._client, f"describe_{self._api.method}")
        try:
            answer = call(**{self._api.name_key: name})
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                return None
            raise typed(error, where=f"job {name}") from error
        return JobSnapshot.from_describe(answer)

    def create(self, request: Mapping[str, Any]) -> str:
        """Create the job and return its ARN.

        Raises:
            NameTakenError: a job of this name exists; nothing was created.
            TrainingRunError: the service refused for another reason.
        """
        name = request[self._api.name_key]
        try:
            answer = getattr(self._client, f"create_{self._api.method}")(**request)
        except ClientError as error:
            code, message = code_and_message(error)
            if is_name_taken(code, message):
                raise NameTakenError(f"job {name} exists already", where=f"job {name}") from error
            raise typed(error, where=f"job {name}") from error
        return str(answer[f"{self._api.noun}Arn"])

    def stop(self, name: str) -> bool:
        """Ask the service to stop the job; return False when it had ended or never was.

        Raises:
            TrainingRunError: the service refused although the job runs.
        """
        try:
            getattr(self._client, f"stop_{self._api.method}")(**{self._api.name_key: name})
        except ClientError as error:
            snapshot = self.describe(name)
            if snapshot is None or snapshot.is_terminal or snapshot.status == "Stopping":
                return False
            raise typed(error, where=f"job {name}") from error
        return True

    def was_killed(self, arn: str) -> bool:
        """Return whether the job was stopped because its task was cleared or marked, and not by a person."""
        try:
            tags = self._client.list_tags(ResourceArn=arn)["Tags"]
        except ClientError as error:
            raise typed(error, where=arn) from error
        return KILLED_TAG in tags


def typed(error: ClientError, *, where: str) -> TrainingRunError:
    """Return the service's refusal as an error of ours."""
    code, message = code_and_message(error)
    return service_error(code, message, operation=error.operation_name, where=where)


def code_and_message(error: ClientError) -> tuple[str, str]:
    """Return the code and the text of a refusal; empty where the service gave none."""
    detail = error.response.get("Error", {})
    return str(detail.get("Code", "")), str(detail.get("Message", ""))
