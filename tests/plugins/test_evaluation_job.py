"""What a training measured at its end is brought to where the report and the registry look for it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from distributed_training.pipelines.evaluation_job import EvaluationJobOperator
from distributed_training.pipelines.run_jobs import LastStepEvaluation
from include.errors import ContractError

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]
REPORT = {"metrics": {"test_loss": 1.5}}


def archive(**files: str) -> bytes:
    """Return an output.tar.gz with these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("_", ".", 1))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


def measured(bucket: str) -> LastStepEvaluation:
    return LastStepEvaluation(
        job_name="train-1",
        model_artifact=f"s3://{bucket}/measured/train-1/output/model.tar.gz",
        destination=f"s3://{bucket}/measured/evaluation/evaluation.json",
        reason="no type of processing jobs holds the model",
    )


def test_the_trainings_own_measurement_is_copied_and_no_job_started(aws_connection, task, s3):
    bucket = aws_connection.bucket
    content = archive(metrics_jsonl="{}\n", evaluation_json=json.dumps(REPORT, indent=2))
    s3.put_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz", Body=content)
    operator: Any = EvaluationJobOperator(task_id="evaluate", spec=measured(bucket))

    result = operator.execute(task.context)

    assert result["measured_by"] == "train-1"
    stored = s3.get_object(Bucket=bucket, Key="measured/evaluation/evaluation.json")
    assert json.loads(stored["Body"].read()) == REPORT


@pytest.mark.parametrize("has_output", [True, False], ids=["no file", "no archive"])
def test_a_training_that_measured_nothing_is_no_success(aws_connection, task, s3, has_output):
    bucket = aws_connection.bucket
    if has_output:
        content = archive(metrics_jsonl="{}\n")
        s3.put_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz", Body=content)
    else:
        s3.delete_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz")
    operator: Any = EvaluationJobOperator(task_id="evaluate", spec=measured(bucket))

    with pytest.raises(ContractError, match="left no measurement") as caught:
        operator.execute(task.context)

    assert "evaluation_place processing" in str(caught.value)
