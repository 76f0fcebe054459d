"""What a training measured at its end is brought to where the report and the registry look for it."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from tests.plugins.conftest import IMAGE
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard_airflow.tasks.end_to_end.evaluation_job import EvaluationJobOperator
from trainyard_airflow.tasks.end_to_end.jobs import LastStepEvaluation

pytestmark = pytest.mark.engine
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
        reason="no type of processing jobs can evaluate the model",
    )


def test_the_trainings_own_measurement_is_copied_and_no_job_started(aws_connection, task, s3):
    bucket = aws_connection.bucket
    content = archive(metrics_jsonl="{}\n", evaluation_json=json.dumps(REPORT, indent=2))
    s3.put_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz", Body=content)
    operator: Any = EvaluationJobOperator(task_id="evaluate", spec=measured(bucket))

    result = operator.execute(task.context)

    assert result["measured_by"] == "train-1"
    assert result["metrics"] == {"test_loss": 1.5}
    assert result["evaluation_uri"] == f"s3://{bucket}/measured/evaluation/evaluation.json"
    stored = s3.get_object(Bucket=bucket, Key="measured/evaluation/evaluation.json")
    assert json.loads(stored["Body"].read()) == REPORT


@pytest.mark.parametrize("has_output", [True, False], ids=["no file", "no archive"])
def test_a_model_that_nothing_can_measure_ends_as_not_measured(
    aws_connection, task, s3, has_output
):
    bucket = aws_connection.bucket
    if has_output:
        content = archive(metrics_jsonl="{}\n")
        s3.put_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz", Body=content)
    else:
        s3.delete_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz")
    operator: Any = EvaluationJobOperator(task_id="evaluate", spec=measured(bucket))

    with pytest.raises(AirflowSkipException, match="neither evaluated nor registered") as caught:
        operator.execute(task.context)

    assert "evaluation_place 'processing'" in str(caught.value)


def test_a_processing_job_measures_what_a_training_stopped_early_left(
    aws_connection, task, s3, tmp_path
):
    (tmp_path / "job.py").write_text("print(1)")
    bucket = aws_connection.bucket
    s3.delete_object(Bucket=bucket, Key="measured/train-1/output/output.tar.gz")
    job = ProcessingJobSpec(
        role=aws_connection.role_arn,
        instance_type="ml.m5.large",
        image_uri=IMAGE,
        entry_point="job.py",
        source_dir=str(tmp_path),
        max_run=600,
    )
    spec = replace(measured(bucket), fallback=job)
    operator: Any = EvaluationJobOperator(
        task_id="evaluate", spec=spec, deferrable=False, stream_logs=False
    )

    result = type(operator).execute.__wrapped__(operator, task.context)

    assert result["status"] == "Completed"
    assert "measured_by" not in result
