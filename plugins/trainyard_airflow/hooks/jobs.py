"""Creates, describes, stops and tags SageMaker jobs, and converts every rejection to a typed error."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import ThrottledError, TrainingRunError
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.failures import has_ended, is_name_taken, is_unknown_job
from trainyard.sagemaker_api.job_kinds import JOB_APIS, KILLED_TAG, WARM_POOL_RELEASE, JobKind
from trainyard.sagemaker_api.stop_cause import StopCause, stop_cause
from trainyard_airflow.hooks.redaction import masked_snapshot
from trainyard_airflow.hooks.refusals import answer_or_none, refusals_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)


class NameTakenError(TrainingRunError):
    """A job of this name exists already; the caller re-attaches to it."""


class SageMakerJobs:
    """The jobs of one kind in one account and region."""

    def __init__(self, clients: AwsClients, kind: JobKind) -> None:
        self._client = clients.client("sagemaker")
        self.kind = kind
        self._api = JOB_APIS[kind]

    def describe(self, name: str) -> JobSnapshot | None:
        """Return the job's current snapshot, or None if there is no such job.

        Raises:
            TrainingRunError: the service rejected a call (access, throttling, ...).
        """
        answer = self.description(name)
        return None if answer is None else masked_snapshot(answer)

    def description(self, name: str) -> Mapping[str, Any] | None:
        """Return the service's description of the job, including secrets, or None if there is no such job.

        Raises:
            TrainingRunError: the service rejected the call.
        """
        call = partial(getattr(self._client, self._api.describe), **self._api.named(name))
        found: Mapping[str, Any] | None = answer_or_none(
            call, where=f"job {name}", is_absent=is_unknown_job
        )
        return found

    def create(self, request: Mapping[str, Any]) -> str:
        """Create the job and return its ARN.

        If the Create call is throttled, fails or gets no answer, a Describe call checks if the job exists
        nevertheless.

        Raises:
            NameTakenError: a job of this name exists. Either it existed before this call, or this call created it
                and the answer was lost.
            ThrottledError: the Create call was throttled or failed in the service, and the Describe call then found
                no job or failed.
            BotoCoreError: the Create call got no answer, and the Describe call then found no job or failed.
            TrainingRunError: the service rejected the call for another reason.
        """
        where = f"job {request[self._api.name_key]}"
        call = partial(getattr(self._client, self._api.create), **request)
        try:
            answer = answer_or_none(call, where=where, is_absent=is_name_taken)
        except (ThrottledError, BotoCoreError) as error:
            if self._was_created(request[self._api.name_key]):
                raise NameTakenError(
                    f"{where} was created, but the service's response was lost; the task will find the job by its name",
                    where=where,
                ) from error
            raise
        if answer is None:
            raise NameTakenError(f"{where} already exists", where=where)
        return str(answer[self._api.arn_key])

    def _was_created(self, name: str) -> bool:
        """Return whether a Create call without an answer created the job; False if that cannot be determined."""
        try:
            return self.describe(name) is not None
        except (TrainingRunError, BotoCoreError) as error:
            log.warning("Whether job %s was created is unknown: %s", name, error)
            return False

    def stop(self, name: str, *, is_kill: bool = False) -> bool:
        """Request the stop of the job; return False if it does not exist, has ended or is already stopping.

        Args:
            name: the job.
            is_kill: whether the job's task was killed, for example cleared; a tag records this for `was_killed`.

        Raises:
            TrainingRunError: the service rejected the stop although the job runs.
        """
        snapshot = self.describe(name)
        if snapshot is None or snapshot.status != JobStatus.IN_PROGRESS:
            return False
        if is_kill:
            self._mark_killed(snapshot)
        call = partial(getattr(self._client, self._api.stop), **self._api.named(name))
        answer = answer_or_none(call, where=f"job {name}", is_absent=has_ended)
        return answer is not None

    def release_warm_pool(self, name: str) -> None:
        """End the warm pool of an ended training job.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        with refusals_typed(f"warm pool of job {name}"):
            self._client.update_training_job(**self._api.named(name), **WARM_POOL_RELEASE)

    def _mark_killed(self, snapshot: JobSnapshot) -> None:
        try:
            self._client.add_tags(ResourceArn=snapshot.arn, Tags=[KILLED_TAG])
        except ClientError as error:
            log.warning(
                "The tag with the reason for the stop of job %s was not written: %s",
                snapshot.name,
                error,
            )

    def was_killed(self, arn: str) -> bool:
        """Return whether a tag records that the job was stopped because its task was killed."""
        with refusals_typed(arn):
            return KILLED_TAG in self._client.list_tags(ResourceArn=arn)["Tags"]

    def tags(self, arn: str) -> list[dict[str, str]]:
        """Return the job's tags.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        with refusals_typed(arn):
            return list(self._client.list_tags(ResourceArn=arn)["Tags"])

    def tags_known(self, arn: str) -> dict[str, str]:
        """Return the job's tags by key; empty, with a warning, if they cannot be read."""
        try:
            return {each["Key"]: each["Value"] for each in self.tags(arn)}
        except (TrainingRunError, BotoCoreError) as error:
            log.warning("The tags of %s cannot be read: %s", arn, error)
            return {}

    def add_tag(self, arn: str, tag: Mapping[str, str]) -> None:
        """Tag a job.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        with refusals_typed(arn):
            self._client.add_tags(ResourceArn=arn, Tags=[tag])

    def stop_cause(self, arn: str) -> StopCause | None:
        """Return Trainyard's reason to stop the job; None if others stopped it, or if its tags cannot be read."""
        try:
            return stop_cause(self._client.list_tags(ResourceArn=arn)["Tags"])
        except (ClientError, BotoCoreError) as error:
            log.warning("The tag with the reason for the stop of %s cannot be read: %s", arn, error)
            return None
