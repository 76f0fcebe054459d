"""What the report looks for at the end of a run: jobs left running, metrics in a large archive."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator
from trainyard_airflow.tasks.shared.leftover_jobs import job_name_of, stop_leftover_jobs
from trainyard_airflow.tasks.shared.output_archive import lines_in_archive
from trainyard_airflow.tasks.shared.run_paths import RunPaths

pytestmark = pytest.mark.engine

WAITS = "import time\nwhile True:\n    time.sleep(0.05)\n"


def left_running(task: Any, spec: dict[str, Any]) -> str:
    """Create the task's job and leave no trace of it in Airflow."""
    made = TrainingJobOperator(task_id=task.task_id, spec=spec)
    name = made.task_jobs(task.context).name_of(1)
    made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])
    return name


def paths_of(task: Any, *, bucket: str) -> RunPaths:
    return RunPaths(bucket=bucket, prefix="trainyard", dag_id=task.dag_id, run_id=task.run_id)


def status_of(name: str) -> str:
    snapshot = SageMakerJobs(AwsClients(ConnectionArguments()), JobKind.TRAINING).describe(name)
    assert snapshot is not None
    return snapshot.status


def test_job_that_left_no_xcom_is_stopped(aws_connection, task, script):
    paths = paths_of(task, bucket=aws_connection.bucket)
    name = left_running(task, script(WAITS, output_path=paths.output))
    clients = AwsClients(ConnectionArguments())

    assert stop_leftover_jobs(clients, paths, task_ids=["preflight", "shard", "train"]) == [name]
    assert status_of(name) in {"Stopping", "Stopped"}


def test_job_of_another_deployment_is_left_alone(aws_connection, task, script, sagemaker):
    name = left_running(task, script(WAITS, output_path=f"s3://{aws_connection.bucket}/other/"))
    clients = AwsClients(ConnectionArguments())

    assert not stop_leftover_jobs(
        clients, paths_of(task, bucket=aws_connection.bucket), task_ids=["train"]
    )
    assert status_of(name) == "InProgress"
    sagemaker.stop_training_job(TrainingJobName=name)


@pytest.mark.parametrize(("refusals", "is_stopped"), [(2, True), (9, False)], ids=["some", "all"])
def test_refused_stop_is_repeated_and_then_told(
    aws_connection, task, script, sagemaker, monkeypatch, caplog, refusals, is_stopped
):
    monkeypatch.setattr("trainyard_airflow.tasks.shared.leftover_jobs.backoff_s", lambda _: 0.0)
    paths = paths_of(task, bucket=aws_connection.bucket)
    name = left_running(task, script(WAITS, output_path=paths.output))
    clients = AwsClients(ConnectionArguments())
    left = iter(range(refusals))

    def refuse(**_: Any) -> None:
        if next(left, None) is not None:
            answer = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
            raise ClientError(answer, "StopTrainingJob")

    clients.client("sagemaker").meta.events.register(
        "before-call.sagemaker.StopTrainingJob", refuse
    )
    stopped = stop_leftover_jobs(clients, paths, task_ids=["train"])

    assert stopped == ([name] if is_stopped else [])
    assert ("by hand" in caplog.text) is not is_stopped
    if not is_stopped:
        sagemaker.stop_training_job(TrainingJobName=name)


def test_metrics_are_read_without_the_rest_of_a_large_archive():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as files:
        for name, content in (
            ("data/metrics.jsonl", b"one\ntwo\n"),
            ("big", os.urandom(4_000_000)),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            files.addfile(member, io.BytesIO(content))
    size = archive.tell()
    archive.seek(0)

    assert list(lines_in_archive(archive, name="metrics.jsonl")) == ["one", "two"]
    assert archive.tell() < size / 10


def test_search_is_looked_for_by_the_name_that_its_operator_gives(aws_connection, task):
    operator = TuneHyperparametersOperator(task_id=TaskId.TUNE, spec="{{ params.spec }}")
    paths = paths_of(task, bucket=aws_connection.bucket)

    name = job_name_of(paths, task_id=TaskId.TUNE, attempt=2)

    assert name == operator.task_jobs(
        task.context | {"ti": replace(task, task_id=TaskId.TUNE)}
    ).name_of(2)
    assert len(name) <= 32


def test_mapped_trial_that_left_no_xcom_is_stopped(aws_connection, task, script):
    paths = paths_of(task, bucket=aws_connection.bucket)
    spec = script(WAITS, output_path=f"{paths.tuning}/output")
    made = TrainingJobOperator(task_id="trials_1", spec=spec)
    context = task.context | {"ti": replace(task, task_id="trials_1", map_index=1)}
    name = made.task_jobs(context).name_of(1)
    made.task_jobs(context).service.create(made.job_run(context).render(name)[0])
    clients = AwsClients(ConnectionArguments())

    stopped = stop_leftover_jobs(
        clients, paths, task_ids=[], trial_tasks=["trials_1"], num_mapped=2
    )

    assert stopped == [name]
    assert status_of(name) in {"Stopping", "Stopped"}
