"""Quotas: a job beyond one is refused in the service's words, and Service Quotas tells their values."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_engine.services.quotas import LONGEST_RUN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"


def put(engine: RunningEngine, quotas: Any) -> None:
    """Set the account's quotas; None restores the defaults."""
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{engine.endpoint_url}/_engine/quotas",
        data=None if quotas is None else json.dumps(quotas).encode(),
        method="DELETE" if quotas is None else "PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310  # loopback


@pytest.fixture
def quotas(engine: RunningEngine) -> Iterator[Any]:
    yield lambda found: put(engine, found)
    put(engine, None)


def train(engine: RunningEngine, script: str = "true", **members: Any) -> str:
    """Create a training job that runs a shell script; return its name."""
    name = f"quota-{uuid.uuid4().hex[:8]}"
    request = {
        "TrainingJobName": name,
        "RoleArn": engine.role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c", script],
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{engine.bucket}/output"},
        "ResourceConfig": on("ml.m5.large"),
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }
    engine.client("sagemaker").create_training_job(**request)
    return str(request["TrainingJobName"])


def ended(engine: RunningEngine, name: str) -> None:
    """Wait until a training job has ended."""
    waiter = engine.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def values(engine: RunningEngine) -> dict[str, float]:
    pages = engine.client("service-quotas").get_paginator("list_service_quotas")
    return {
        each["QuotaName"]: each["Value"]
        for page in pages.paginate(ServiceCode="sagemaker")
        for each in page["Quotas"]
    }


def test_a_token_of_nobody_is_refused(own_engine: RunningEngine) -> None:
    quotas = own_engine.client("service-quotas")

    with pytest.raises(ClientError, match="InvalidPaginationTokenException"):
        quotas.list_service_quotas(ServiceCode="sagemaker", NextToken="second")


def on(instance_type: str, count: int = 1) -> dict[str, Any]:
    return {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 1}


SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
}
BEYOND: dict[str, tuple[dict[str, Any], str, int]] = {
    "on demand": (
        {"ResourceConfig": on("ml.p5.48xlarge")},
        "ml.p5.48xlarge for training job usage' is 0 Instances",
        1,
    ),
    "spot": (
        {"ResourceConfig": on("ml.p4d.24xlarge", 8), **SPOT},
        "ml.p4d.24xlarge for spot training job usage' is 0 Instances",
        8,
    ),
    "one group of two": (
        {
            "ResourceConfig": {
                "InstanceGroups": [
                    {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 1},
                    {
                        "InstanceGroupName": "b",
                        "InstanceType": "ml.trn1.32xlarge",
                        "InstanceCount": 2,
                    },
                ],
                "VolumeSizeInGB": 1,
            }
        },
        "ml.trn1.32xlarge for training job usage' is 0 Instances",
        2,
    ),
    "longest run": (
        {"StoppingCondition": {"MaxRuntimeInSeconds": 432_001}},
        f"{LONGEST_RUN}' is 432000 Seconds",
        432_001,
    ),
}


@pytest.mark.parametrize("case", BEYOND, ids=lambda case: case.replace(" ", "-"))
def test_training_beyond_a_default_quota_is_refused(engine: RunningEngine, case: str) -> None:
    members, said, delta = BEYOND[case]
    with pytest.raises(ClientError) as caught:
        train(engine, **members)
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceLimitExceeded"
    assert said in error["Message"]
    assert f"a request delta of {delta} " in error["Message"]


def test_processing_beyond_its_quota_is_refused(engine: RunningEngine) -> None:
    with pytest.raises(ClientError, match=r"ml\.p5\.4xlarge for processing job usage' is 0"):
        engine.client("sagemaker").create_processing_job(
            ProcessingJobName="quota",
            RoleArn=engine.role_arn,
            AppSpecification={"ImageUri": IMAGE},
            ProcessingResources={"ClusterConfig": on("ml.p5.4xlarge")},
        )


def test_running_jobs_use_a_quota_up_until_they_end(engine: RunningEngine, quotas: Any) -> None:
    c5 = {"ResourceConfig": on("ml.c5.2xlarge")}
    quotas({"*": {"ml.c5.2xlarge for training job usage": 1}})
    name = train(engine, "sleep 300", **c5)
    with pytest.raises(ClientError, match=r"is 1 Instances, with current utilization of 1 "):
        train(engine, **c5)
    with pytest.raises(ClientError, match="ResourceInUse"):
        train(engine, TrainingJobName=name, **c5)

    engine.client("sagemaker").stop_training_job(TrainingJobName=name)
    ended(engine, name)

    ended(engine, train(engine, **c5))


def test_a_region_s_quota_is_its_own(engine: RunningEngine, quotas: Any) -> None:
    name = "ml.m5.large for training job usage"
    quotas({"eu-north-1": {name: 3}, "*": {"ml.m5.*": 7}})

    assert values(engine)[name] == 7
    north = engine.client("service-quotas", region_name="eu-north-1")
    code = next(
        each["QuotaCode"]
        for page in north.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
        for each in page["Quotas"]
        if each["QuotaName"] == name
    )
    quota = north.get_service_quota(ServiceCode="sagemaker", QuotaCode=code)["Quota"]
    assert (quota["QuotaName"], quota["Value"]) == (name, 3)


def test_service_quotas_tells_the_defaults(engine: RunningEngine) -> None:
    found = values(engine)

    assert found["ml.m5.large for training job usage"] > 0
    assert found["ml.p5.48xlarge for spot training job usage"] == 0
    assert found["ml.g5.xlarge for processing job usage"] == 1
    assert found[LONGEST_RUN] == 432_000


@pytest.mark.parametrize(
    "wrong", [[], {"*": 1}, {"*": {"ml.m5.large for fun": 1}}, {"*": {LONGEST_RUN: -1}}]
)
def test_quotas_that_cannot_be_are_refused(engine: RunningEngine, wrong: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        put(engine, wrong)
    with caught.value as error:
        assert error.code == 400
        assert "quotas" in json.load(error)["message"]
