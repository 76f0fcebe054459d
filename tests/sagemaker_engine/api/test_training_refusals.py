"""What CreateTrainingJob refuses because the engine cannot do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine
DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"


@pytest.mark.parametrize(
    ("members", "says"),
    [
        pytest.param(
            {"HyperParameters": {"mp_parameters": '{"partitions": 2}'}},
            "mp_parameters requests SageMaker's model parallel library",
            id="SMP 1",
        ),
        pytest.param(
            {"ExperimentConfig": {"ExperimentName": "mine"}},
            "ExperimentConfig is not supported by the local engine: no experiment would list the job",
            id="experiment",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_at_create(
    engine: RunningEngine, members: dict[str, Any], says: str
) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        engine.client("sagemaker").create_training_job(
            TrainingJobName="refused",
            RoleArn=engine.role_arn,
            AlgorithmSpecification={"TrainingImage": DLC, "TrainingInputMode": "File"},
            OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
            **members,
        )
    assert caught.value.response["Error"]["Code"] == "ValidationException"
