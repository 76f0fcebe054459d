from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

SERVERLESS = {
    "JobType": "FineTuning",
    "BaseModelArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/hub/Model/m",
}


@pytest.mark.parametrize("members", [{}, {"InputMode": "File"}], ids=["no-mode", "mode"])
def test_serverless_job_is_refused_with_what_to_give_in_its_place(
    engine: RunningEngine, members: dict[str, Any]
) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{engine.bucket}/data"}}

    with pytest.raises(ClientError) as refused:
        engine.client("sagemaker").create_training_job(
            TrainingJobName="serverless",
            RoleArn=engine.role_arn,
            ServerlessJobConfig=SERVERLESS,
            OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/out"},
            InputDataConfig=[{"ChannelName": "train", "DataSource": source, **members}],
        )

    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert "use AlgorithmSpecification and ResourceConfig" in str(refused.value)
