"""What faults of S3 and of the other services look like to their clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ResponseStreamingError

from sagemaker_engine.testing import faults, times_fired

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

ONE_TRY = Config(retries={"total_max_attempts": 1, "mode": "standard"})
CONTENT = b"0123456789" * 70_001


@pytest.fixture
def s3(engine: RunningEngine) -> Any:
    """A client that asks once, and an object to ask for."""
    client = engine.client("s3", config=ONE_TRY)
    client.put_object(Bucket=engine.bucket, Key="faults/a", Body=CONTENT)
    return client


def code_and_status(call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    answer = refused.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, ("InternalError", 500)),
        ({"status": 503}, ("SlowDown", 503)),
        ({"status": 403}, ("AccessDenied", 403)),
        ({"status": 400, "code": "ExpiredToken"}, ("ExpiredToken", 400)),
    ],
    ids=["internal", "slow-down", "denied", "any"],
)
def test_s3_refuses_as_often_as_it_is_told(
    engine: RunningEngine, s3: Any, members: dict[str, Any], expected: tuple[str, int]
) -> None:
    at = {"Bucket": engine.bucket, "Key": "faults/a"}
    with faults(engine.endpoint_url, {"what": "s3_error", "count": 2, **members}):
        assert code_and_status(s3.get_object, **at) == expected
        assert code_and_status(s3.put_object, **at, Body=b"lost") == expected
        assert s3.get_object(**at)["Body"].read() == CONTENT
        assert times_fired(engine.endpoint_url) == [2]


def test_s3_refuses_only_what_the_fault_is_for(engine: RunningEngine, s3: Any) -> None:
    fault = {"what": "s3_error", "operation": "PutObject", "key_prefix": "faults/b"}
    bucket = engine.bucket
    with faults(engine.endpoint_url, {**fault, "bucket": bucket}, {**fault, "bucket": "another"}):
        s3.get_object(Bucket=bucket, Key="faults/a")
        s3.put_object(Bucket=bucket, Key="faults/c", Body=b"")
        s3.list_objects_v2(Bucket=bucket, Prefix="faults/b")
        assert times_fired(engine.endpoint_url) == [0, 0]
        refused = code_and_status(s3.put_object, Bucket=bucket, Key="faults/bc", Body=b"")

        assert refused == ("InternalError", 500)
        assert times_fired(engine.endpoint_url) == [1, 0]


def test_an_outage_ends_by_itself(engine: RunningEngine, s3: Any) -> None:
    at = {"Bucket": engine.bucket, "Prefix": "faults/"}
    begun = time.monotonic()
    with faults(engine.endpoint_url, {"what": "s3_error", "duration_s": 3}):
        assert code_and_status(s3.list_objects_v2, **at) == ("InternalError", 500)
        found = engine.client(
            "s3", config=Config(retries={"total_max_attempts": 8, "mode": "standard"})
        ).list_objects_v2(**at)

    assert found["KeyCount"] > 0
    assert time.monotonic() - begun >= 3


def test_a_stall_holds_the_answer_up(engine: RunningEngine, s3: Any) -> None:
    with faults(engine.endpoint_url, {"what": "s3_stall", "duration_s": 0.7}):
        begun = time.monotonic()
        answer = s3.head_object(Bucket=engine.bucket, Key="faults/a")
        stalled_s = time.monotonic() - begun

    assert answer["ContentLength"] == len(CONTENT)
    assert stalled_s >= 0.7


def test_half_an_object_is_never_a_short_one(engine: RunningEngine, s3: Any) -> None:
    at = {"Bucket": engine.bucket, "Key": "faults/a"}
    with faults(engine.endpoint_url, {"what": "s3_truncate", "count": 3}):
        with pytest.raises((IncompleteReadError, ResponseStreamingError)):
            s3.get_object(**at)["Body"].read()
        with pytest.raises((IncompleteReadError, ResponseStreamingError)):
            list(s3.get_object(**at)["Body"].iter_chunks())
        body = s3.get_object(**at)["Body"]
        with pytest.raises((IncompleteReadError, ResponseStreamingError)):
            list(iter(lambda: body.read(65536), b""))
        assert s3.get_object(**at)["Body"].read() == CONTENT


def test_a_download_that_is_cut_is_made_again(
    engine: RunningEngine, s3: Any, tmp_path: Path
) -> None:
    with faults(engine.endpoint_url, {"what": "s3_truncate"}):
        s3.download_file(engine.bucket, "faults/a", str(tmp_path / "a"))
        assert times_fired(engine.endpoint_url) == [1]

    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "code"),
    [
        ("sagemaker", "list_training_jobs", {}, "ThrottlingException"),
        ("logs", "describe_log_groups", {}, "ThrottlingException"),
        ("sts", "get_caller_identity", {}, "Throttling"),
    ],
    ids=["sagemaker", "logs", "sts"],
)
def test_a_throttled_operation_says_so_in_its_services_words(
    engine: RunningEngine, service: str, operation: str, arguments: dict[str, Any], code: str
) -> None:
    client = engine.client(service, config=ONE_TRY)
    name = client.meta.method_to_api_mapping[operation]
    with faults(engine.endpoint_url, {"what": "throttle", "operation": name}):
        with pytest.raises(ClientError, match="Rate exceeded") as refused:
            getattr(client, operation)(**arguments)
        getattr(client, operation)(**arguments)

    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_throttle_without_an_operation_is_for_sagemaker(engine: RunningEngine) -> None:
    sagemaker = engine.client("sagemaker", config=ONE_TRY)
    with faults(engine.endpoint_url, {"what": "throttle", "count": None}):
        engine.client("logs", config=ONE_TRY).describe_log_groups()
        engine.client("sts", config=ONE_TRY).get_caller_identity()
        assert code_and_status(sagemaker.list_training_jobs)[0] == "ThrottlingException"
        assert code_and_status(sagemaker.list_processing_jobs)[0] == "ThrottlingException"


def test_a_service_may_fail_by_any_code(engine: RunningEngine) -> None:
    sagemaker = engine.client("sagemaker", config=ONE_TRY)
    fault = {"what": "throttle", "code": "ServiceUnavailable", "status": 503}
    with faults(engine.endpoint_url, fault):
        assert code_and_status(sagemaker.list_training_jobs) == ("ServiceUnavailable", 503)


@pytest.mark.parametrize(
    ("resources", "members", "limit"),
    [
        (
            {"InstanceType": "ml.g5.2xlarge", "InstanceCount": 4},
            {"EnableManagedSpotTraining": True},
            ("ml.g5.2xlarge for spot training job usage", 4),
        ),
        (
            {
                "InstanceGroups": [
                    {
                        "InstanceGroupName": "one",
                        "InstanceType": "ml.p4d.24xlarge",
                        "InstanceCount": 2,
                    }
                ]
            },
            {},
            ("ml.p4d.24xlarge for training job usage", 2),
        ),
    ],
    ids=["spot", "groups"],
)
def test_a_quota_is_refused_in_the_services_words(
    engine: RunningEngine,
    resources: dict[str, Any],
    members: dict[str, Any],
    limit: tuple[str, int],
) -> None:
    sagemaker = engine.client("sagemaker", config=ONE_TRY)
    with (
        faults(engine.endpoint_url, {"what": "resource_limit"}),
        pytest.raises(ClientError) as refused,
    ):
        sagemaker.create_training_job(
            TrainingJobName="over-quota",
            RoleArn=engine.role_arn,
            AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
            OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/out"},
            ResourceConfig={"VolumeSizeInGB": 1, **resources},
            StoppingCondition={"MaxRuntimeInSeconds": 600},
            **members,
        )

    error = refused.value.response["Error"]
    assert error["Code"] == "ResourceLimitExceeded"
    assert error["Message"].startswith(
        f"The account-level service limit '{limit[0]}' is {limit[1]} Instances, with current "
        f"utilization of {limit[1]} Instances and a request delta of {limit[1]} Instances."
    )
