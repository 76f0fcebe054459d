"""`TaskJobs`: the jobs of one task in one account, with their names, tags, S3 prefix and API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainyard.runs.run_tags import Owner
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobApi, JobKind
from trainyard.sagemaker_api.names import job_name, run_uri
from trainyard_airflow.jobs.given_spec import OmittedFields

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.jobs import SageMakerJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKey:
    """The task instance that jobs belong to; `map_index` is -1 if the task is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    def job_name(self, kind: JobKind, attempt: int, *, deployment: str | None) -> str:
        """Return the name of the task's job for an attempt; attempts are counted from 1.

        The name also depends on `deployment`, the name of the Airflow deployment, unless it is None.
        """
        return job_name(
            dag_id=self.dag_id,
            run_id=self.run_id,
            task_id=self.task_id,
            map_index=self.map_index,
            attempt=attempt,
            longest=JOB_APIS[kind].longest_name,
            deployment=deployment,
        )


@dataclass(frozen=True, kw_only=True)
class TaskJobs:
    """The jobs of one task.

    Attributes:
        kind: training, processing, tuning or AutoML.
        clients: clients of the task's connection.
        project: base folder of relative source folders.
    """

    task: TaskKey
    kind: JobKind
    clients: AwsClients
    project: Path

    @cached_property
    def service(self) -> SageMakerJobs:
        """Client for the jobs of this kind: create, describe, stop and tag."""
        from trainyard_airflow.hooks.jobs import SageMakerJobs

        return SageMakerJobs(self.clients, self.kind)

    @property
    def api(self) -> JobApi:
        """The names of the service's calls and fields for this kind of job."""
        return JOB_APIS[self.kind]

    @property
    def tags(self) -> dict[str, str]:
        """The tags that identify the task of a job."""
        owner = Owner(
            dag_id=self.task.dag_id,
            run_id=self.task.run_id,
            task_id=self.task.task_id,
            deployment=self.clients.deployment,
        )
        return owner.tags()

    @property
    def run_uri(self) -> str:
        """The S3 prefix of the task's run."""
        return run_uri(self.clients.root, dag_id=self.task.dag_id, run_id=self.task.run_id)

    @property
    def omitted_fields(self) -> OmittedFields:
        """Values for the fields that may be missing if the spec is a mapping."""
        return OmittedFields(
            role=self.clients.execution_role,
            folder=lambda name: f"{self.run_uri}/{name}",
            checkpoints=lambda: self.checkpoints_uri,
        )

    @property
    def checkpoints_uri(self) -> str:
        """The S3 prefix of the task's checkpoints, the same for all its jobs."""
        index = "" if self.task.map_index < 0 else f"/{self.task.map_index}"
        return f"{self.run_uri}/checkpoints/{self.task.task_id}{index}/"

    def name_of(self, attempt: int) -> str:
        """Return the name of the task's job for an attempt; attempts are counted from 1."""
        return self.task.job_name(self.kind, attempt, deployment=self.clients.deployment)

    def of_attempt(self, attempt: int) -> JobSnapshot | None:
        """Return the snapshot of the task's job for an attempt, or None if there is no such job."""
        return self.service.describe(self.name_of(attempt))

    def account_for(self, role: str) -> str | None:
        """Return the account id that completes a role's name to an ARN; None if the role is an ARN."""
        return None if role.startswith("arn:") else self.clients.account
