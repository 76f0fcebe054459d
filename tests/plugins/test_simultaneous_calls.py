"""Calls of the service that another caller overtakes after their check."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.model_registry import ModelRegistry
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


def before(clients: AwsClients, operation: str, act: Callable[[], None]) -> None:
    """Let `act` run before each call of an operation by these clients."""

    def handler(**_: Any) -> None:  # a result would replace the service's answer
        act()

    clients.client("sagemaker").meta.events.register(f"before-call.sagemaker.{operation}", handler)


def test_a_job_that_ends_before_the_stop_reaches_it_is_not_an_error(
    aws_connection: RunningEngine, task: Any, script: Any
) -> None:
    made = TrainingJobOperator(task_id=task.task_id, spec=script("import time\ntime.sleep(600)\n"))
    name = made.task_jobs(task.context).name_of(1)
    made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])
    sagemaker = aws_connection.client("sagemaker")

    def end() -> None:
        sagemaker.stop_training_job(TrainingJobName=name)
        while sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] != (
            "Stopped"
        ):
            time.sleep(0.1)

    clients = AwsClients(ConnectionArguments())
    before(clients, "StopTrainingJob", end)

    assert SageMakerJobs(clients, JobKind.TRAINING).stop(name) is False


def test_a_group_that_another_run_creates_meanwhile_is_used(aws_connection: RunningEngine) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    sagemaker = aws_connection.client("sagemaker")
    clients = AwsClients(ConnectionArguments())
    before(
        clients,
        "CreateModelPackageGroup",
        lambda: sagemaker.create_model_package_group(ModelPackageGroupName=group),
    )
    artifact = f"s3://{aws_connection.bucket}/{group}/model.tar.gz"
    version = ModelVersion(group=group, model_artifact=artifact, source="job", lineage={})

    _, is_new = ModelRegistry(clients).ensure_version(version)

    assert is_new
