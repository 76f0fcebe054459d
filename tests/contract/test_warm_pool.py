from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


@pytest.fixture
def job(endpoint: Endpoint) -> str:
    """The name of a finished job that holds a warm pool for ten minutes."""
    resources = {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 1,
        "VolumeSizeInGB": 1,
        "KeepAlivePeriodInSeconds": 600,
    }
    described = endpoint.run(endpoint.training_request(ResourceConfig=resources))
    return str(described["TrainingJobName"])


def test_finished_job_holds_its_pool(endpoint: Endpoint, job: str) -> None:
    assert endpoint.describe(job)["WarmPoolStatus"]["Status"] == "Available"
    found = endpoint.sagemaker.list_training_jobs(
        NameContains=job, WarmPoolStatusEquals="Available"
    )
    assert [each["TrainingJobName"] for each in found["TrainingJobSummaries"]] == [job]


def test_job_that_holds_a_pool_is_not_deleted(endpoint: Endpoint, job: str) -> None:
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.delete_training_job(TrainingJobName=job)
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"


def test_pool_ends_when_its_retention_is_set_to_nothing(endpoint: Endpoint, job: str) -> None:
    endpoint.sagemaker.update_training_job(
        TrainingJobName=job, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )
    assert endpoint.describe(job)["WarmPoolStatus"]["Status"] == "Terminated"
    endpoint.sagemaker.delete_training_job(TrainingJobName=job)


def test_job_without_retention_has_no_pool(endpoint: Endpoint) -> None:
    assert "WarmPoolStatus" not in endpoint.run(endpoint.training_request())
