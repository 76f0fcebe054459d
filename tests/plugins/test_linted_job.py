"""A training job of any DAG says in its log what AWS would do badly about it, before it is created."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard_airflow.operators.training_job import TrainingJobOperator

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_findings_are_in_the_log_and_the_job_runs(
    aws_connection: Any, task: Any, script: Any, caplog: pytest.LogCaptureFixture
):
    spec = script("pass", instance_count=2)
    operator = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)

    result = TrainingJobOperator.execute.__wrapped__(operator, task.context)

    ours = [each for each in caplog.records if each.name.startswith("trainyard")]
    warned = [each.getMessage() for each in ours if each.levelname == "WARNING"]
    finding = "warning: distribution: is empty, so every instance runs the same training separately"
    assert [line.startswith(finding) for line in warned] == [True]
    assert result["status"] == "Completed"
