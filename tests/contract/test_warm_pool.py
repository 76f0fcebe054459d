from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


RESOURCES = {
    "InstanceType": "ml.m5.large",
    "InstanceCount": 1,
    "VolumeSizeInGB": 1,
    "KeepAlivePeriodInSeconds": 600,
}


@pytest.fixture
def job(endpoint: Endpoint) -> Iterator[str]:
    """The name of a finished job that holds a warm pool for ten minutes."""
    described = endpoint.run(endpoint.training_request(ResourceConfig=RESOURCES))
    name = str(described["TrainingJobName"])
    yield name
    held = endpoint.sagemaker.list_training_jobs(
        NameContains=name, WarmPoolStatusEquals="Available"
    )
    for each in held["TrainingJobSummaries"]:
        endpoint.sagemaker.update_training_job(
            TrainingJobName=each["TrainingJobName"],
            ResourceConfig={"KeepAlivePeriodInSeconds": 0},
        )


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


@pytest.mark.parametrize("period_s", [0, 3600])
def test_period_of_an_ended_pool_is_not_changed(
    endpoint: Endpoint, job: str, period_s: int
) -> None:
    endpoint.sagemaker.update_training_job(
        TrainingJobName=job, ResourceConfig={"KeepAlivePeriodInSeconds": 1}
    )
    ended = wait_until(
        lambda: endpoint.describe(job)["WarmPoolStatus"],
        lambda pool: pool["Status"] == "Terminated",
        clock=endpoint.clock,
        what="the end of the warm pool",
    )

    with pytest.raises(ClientError, match=r"ValidationException.*Terminated"):
        endpoint.sagemaker.update_training_job(
            TrainingJobName=job, ResourceConfig={"KeepAlivePeriodInSeconds": period_s}
        )

    assert endpoint.describe(job)["WarmPoolStatus"] == ended


def test_period_is_not_changed_before_the_job_ends(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("sleep 300", ResourceConfig=RESOURCES))

    with pytest.raises(ClientError, match=r"ValidationException.*InUse"):
        endpoint.sagemaker.update_training_job(
            TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
        )

    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    if endpoint.finished(name)["WarmPoolStatus"]["Status"] == "Available":
        endpoint.sagemaker.update_training_job(
            TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
        )


def test_released_pool_keeps_its_billed_seconds(endpoint: Endpoint, job: str) -> None:
    held = 0
    while held < 2:
        held = endpoint.describe(job)["WarmPoolStatus"]["ResourceRetainedBillableTimeInSeconds"]
        time.sleep(0.2)
    endpoint.sagemaker.update_training_job(
        TrainingJobName=job, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )

    pool = endpoint.describe(job)["WarmPoolStatus"]
    assert pool["Status"] == "Terminated"
    assert held <= pool["ResourceRetainedBillableTimeInSeconds"] <= held + 60


def test_job_without_retention_has_no_pool(endpoint: Endpoint) -> None:
    assert "WarmPoolStatus" not in endpoint.run(endpoint.training_request())


def test_matching_job_takes_the_pool_over_and_holds_it_on(endpoint: Endpoint, job: str) -> None:
    second = endpoint.start(endpoint.training_request(ResourceConfig=RESOURCES))

    pool = endpoint.describe(job)["WarmPoolStatus"]
    assert (pool["Status"], pool["ReusedByJob"]) == ("Reused", second)
    assert pool["ResourceRetainedBillableTimeInSeconds"] >= 0
    ended = endpoint.finished(second)
    assert ended["WarmPoolStatus"]["Status"] == "Available"
    endpoint.sagemaker.delete_training_job(TrainingJobName=job)
    third = endpoint.start(endpoint.training_request(ResourceConfig=RESOURCES))
    assert endpoint.describe(second)["WarmPoolStatus"]["ReusedByJob"] == third
    endpoint.finished(third)
    endpoint.sagemaker.update_training_job(
        TrainingJobName=third, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )


@pytest.mark.parametrize(
    "members",
    [
        {"ResourceConfig": {**RESOURCES, "InstanceType": "ml.m5.xlarge"}},
        {"ResourceConfig": {**RESOURCES, "VolumeSizeInGB": 2}},
        {"ResourceConfig": RESOURCES, "EnableNetworkIsolation": True},
    ],
    ids=["another type", "another volume", "isolated"],
)
def test_job_that_does_not_match_leaves_the_pool(
    endpoint: Endpoint, job: str, members: dict[str, Any]
) -> None:
    other = {**members, "ResourceConfig": dict(members["ResourceConfig"])}
    del other["ResourceConfig"]["KeepAlivePeriodInSeconds"]
    endpoint.start(endpoint.training_request(**other))

    assert endpoint.describe(job)["WarmPoolStatus"]["Status"] == "Available"
