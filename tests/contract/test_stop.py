from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

OBEDIENT = "trap 'echo saved > /opt/ml/model/last; exit 0' TERM; sleep 300 & wait"
DEAF = "trap '' TERM; while true; do sleep 1; done"


def test_stop_shows_stopping_at_once_and_stopped_in_the_end(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("sleep 300"))
    endpoint.reaches(name, "Training")
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert endpoint.describe(name)["TrainingJobStatus"] in {"Stopping", "Stopped"}
    described = endpoint.finished(name)
    assert described["TrainingJobStatus"] == "Stopped"
    assert described["SecondaryStatus"] == "Stopped"
    assert "Stopping" in [each["Status"] for each in described["SecondaryStatusTransitions"]]
    assert "FailureReason" not in described


def test_stopped_script_may_save_its_model(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request(OBEDIENT))
    endpoint.reaches(name, "Training")
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    described = endpoint.finished(name)
    assert described["TrainingJobStatus"] == "Stopped"
    key = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{endpoint.bucket}/")
    assert endpoint.client("s3").head_object(Bucket=endpoint.bucket, Key=key)["ContentLength"] > 0


def test_script_that_ignores_the_signal_is_killed(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request(DEAF))
    endpoint.reaches(name, "Training")
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert endpoint.finished(name)["TrainingJobStatus"] == "Stopped"


def test_job_can_be_stopped_before_it_trains(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("sleep 300"))
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert endpoint.finished(name)["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize(
    ("script", "status"), [("true", "Completed"), ("exit 1", "Failed")], ids=["completed", "failed"]
)
def test_finished_job_is_not_stopped(endpoint: Endpoint, script: str, status: str) -> None:
    name = endpoint.run(endpoint.training_request(script))["TrainingJobName"]
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationException"
    expected = f"The request was rejected because the training job is in status {status}."
    assert error["Message"] == expected


def test_stopping_job_is_not_stopped_again(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request(DEAF))
    endpoint.reaches(name, "Training")
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    with pytest.raises(ClientError, match="is in status Stop"):
        endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    transitions = endpoint.finished(name)["SecondaryStatusTransitions"]
    assert [each["Status"] for each in transitions].count("Stopping") == 1
