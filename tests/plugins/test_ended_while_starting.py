"""A task that is ended between its job's creation and its deferral: Airflow refuses the deferral, and tells nobody."""

from __future__ import annotations

import pytest

from tests.plugins.test_job_trigger import WAITS
from trainyard.errors import JobStoppedError
from trainyard_airflow.operators.training_job import TrainingJobOperator

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("state", ["failed", "success", "restarting", None])
def test_job_of_a_task_that_was_ended_meanwhile_is_stopped(
    aws_connection, task, script, sagemaker, state
):
    task.state = state
    made = TrainingJobOperator(task_id=task.task_id, spec=script(WAITS))
    with pytest.raises(JobStoppedError, match="ended while its job started"):
        made.execute(task.context)
    name = made.task_jobs(task.context).name_of(1)
    status = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    assert status in {"Stopping", "Stopped"}
