"""Raw HTTP against the port: whatever is asked, the answer is in the service's protocol."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

SERIALIZATION, VALIDATION = "SerializationException", "ValidationException"
TWO_PROBLEM_TYPES = json.dumps(
    {
        "AutoMLJobName": "two",
        "AutoMLJobInputDataConfig": [
            {
                "ContentType": "text/csv;header=present",
                "CompressionType": "None",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/data"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
        "AutoMLProblemTypeConfig": {
            "TabularJobConfig": {"TargetAttributeName": "y"},
            "TextClassificationJobConfig": {"ContentColumn": "x", "TargetLabelColumn": "y"},
        },
        "RoleArn": "arn:aws:iam::123456789012:role/TrainyardExecutionRole",
    }
).encode()


def post(engine: RunningEngine, body: bytes, **headers: str) -> tuple[int, str, bytes]:
    """Return status, content type and body of the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(engine.endpoint_url, data=body, headers=named)  # noqa: S310
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


@pytest.mark.parametrize(
    ("target", "body", "status", "code"),
    [
        ("SageMaker.MakeCoffee", b"{}", 501, "UnknownOperationException"),
        ("SageMaker.CreateTrainingJob", b"{not json", 400, "SerializationException"),
        ("SageMaker.CreateTrainingJob", b"[]", 400, "SerializationException"),
        ("SageMaker.DescribeTrainingJob", b"{}", 400, "ValidationException"),
        ("SageMaker.DescribeTrainingJob", b"", 400, "ValidationException"),
        ("SageMaker.ListMlflowTrackingServers", b"{}", 501, "UnknownOperationException"),
        ("SageMaker.", b"{}", 501, "UnknownOperationException"),
    ],
)
def test_error_is_json_with_its_type(
    engine: RunningEngine, target: str, body: bytes, status: int, code: str
) -> None:
    got_status, content_type, answer = post(engine, body, X_Amz_Target=target)
    assert (got_status, content_type) == (status, "application/x-amz-json-1.1")
    assert json.loads(answer)["__type"] == code


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        pytest.param(
            "ListTrainingJobs",
            b'{"CreationTimeAfter": 9223372036854775808}',
            SERIALIZATION,
            id="time",
        ),
        pytest.param(
            "ListTrainingJobs", b'{"CreationTimeAfter": 1e300}', SERIALIZATION, id="time-float"
        ),
        pytest.param(
            "ListTrainingJobs", b'{"CreationTimeAfter": NaN}', SERIALIZATION, id="time-nan"
        ),
        pytest.param(
            "ListModels",
            b'{"CreationTimeBefore": -9223372036854775809}',
            SERIALIZATION,
            id="time-before",
        ),
        pytest.param(
            "ListTrainingJobs", b'{"MaxResults": 9223372036854775808}', SERIALIZATION, id="integer"
        ),
        pytest.param(
            "ListTrainingJobs", b'{"NameContains": "\\ud800"}', SERIALIZATION, id="surrogate"
        ),
        pytest.param(
            "ListModels", b'{"NameContains": "\xed\xa0\x80"}', SERIALIZATION, id="surrogate-bytes"
        ),
        pytest.param("ListTrainingJobs", b"[" * 100_000, SERIALIZATION, id="deep"),
        pytest.param(
            "ListTrainingJobs",
            b'{"X":' * 100_000 + b"1" + b"}" * 100_000,
            SERIALIZATION,
            id="deep-objects",
        ),
        pytest.param(
            "AddTags",
            b'{"ResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x", "Tags": [null]}',
            VALIDATION,
            id="null-in-list",
        ),
        pytest.param(
            "CreateTrainingJob", b'{"InputDataConfig": [null]}', VALIDATION, id="null-channel"
        ),
        pytest.param("CreateAutoMLJobV2", TWO_PROBLEM_TYPES, VALIDATION, id="two-of-a-union"),
    ],
)
def test_an_odd_value_is_refused_as_the_services_front_end_does(
    engine: RunningEngine, target: str, body: bytes, code: str
) -> None:
    status, content_type, answer = post(engine, body, X_Amz_Target=f"SageMaker.{target}")

    assert (status, content_type) == (400, "application/x-amz-json-1.1")
    assert json.loads(answer)["__type"] == code


def test_operation_that_the_engine_lacks_says_so(engine: RunningEngine) -> None:
    with pytest.raises(ClientError) as caught:
        engine.client("sagemaker").list_mlflow_tracking_servers()
    error = caught.value.response["Error"]
    assert error["Code"] == "UnknownOperationException"
    assert "does not support the operation ListMlflowTrackingServers" in error["Message"]


def test_request_for_a_description_is_checked_like_any_other(engine: RunningEngine) -> None:
    with pytest.raises(ClientError, match="at 'modelName' failed to satisfy constraint"):
        engine.client("sagemaker").describe_model(ModelName="bad_name!")


def test_query_service_that_moto_lacks_answers_xml(engine: RunningEngine) -> None:
    scope = "Credential=test/20260101/us-east-1/iam/aws4_request"
    status, content_type, answer = post(
        engine,
        b"Action=GenerateServiceLastAccessedDetails&Version=2010-05-08",
        Authorization=f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
        Content_Type="application/x-www-form-urlencoded",
    )
    assert status >= 400
    assert "html" not in content_type
    assert b"<html" not in answer


def test_moto_answers_for_other_services(engine: RunningEngine) -> None:
    assert engine.client("sts").get_caller_identity()["Account"] == engine.account
    queue = engine.client("sqs").create_queue(QueueName="gateway")["QueueUrl"]
    assert queue in engine.client("sqs").list_queues()["QueueUrls"]


def test_moto_keeps_log_groups_that_are_not_jobs(engine: RunningEngine) -> None:
    logs = engine.client("logs")
    logs.create_log_group(logGroupName="mine")
    logs.create_log_stream(logGroupName="mine", logStreamName="stream")
    groups = logs.describe_log_groups()["logGroups"]
    assert "mine" in [group["logGroupName"] for group in groups]
    streams = logs.describe_log_streams(logGroupName="mine")["logStreams"]
    assert [stream["logStreamName"] for stream in streams] == ["stream"]


def test_every_action_is_allowed_in_a_simulation(engine: RunningEngine) -> None:
    pages = engine.client("iam").get_paginator("simulate_principal_policy")
    results = pages.paginate(
        PolicySourceArn=engine.role_arn,
        ActionNames=["s3:GetObject", "sagemaker:CreateTrainingJob"],
    ).build_full_result()["EvaluationResults"]
    assert {result["EvalDecision"] for result in results} == {"allowed"}
    assert len(results) == 2


def test_region_of_the_signature_is_the_region_of_the_arn(engine: RunningEngine) -> None:
    client = engine.client("sagemaker", region_name="eu-west-1")
    answer = client.create_model_package_group(ModelPackageGroupName="in-europe")
    assert answer["ModelPackageGroupArn"].split(":")[3] == "eu-west-1"


def test_presigned_url_needs_no_headers(engine: RunningEngine) -> None:
    s3 = engine.client("s3")
    s3.put_object(Bucket=engine.bucket, Key="presigned", Body=b"body")
    url = s3.generate_presigned_url(
        "get_object", Params={"Bucket": engine.bucket, "Key": "presigned"}
    )
    with urllib.request.urlopen(url) as answer:  # noqa: S310
        assert answer.read() == b"body"


def test_a_failure_of_the_engines_own_route_is_json(engine: RunningEngine) -> None:
    request = urllib.request.Request(  # noqa: S310
        f"{engine.endpoint_url}/_engine/faults", data=b" " * ((32 << 20) + 1), method="PUT"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)  # noqa: S310
    with caught.value as error:
        assert error.code == 413
        assert json.load(error)["__type"] == "RequestEntityTooLargeException"


def test_unknown_path_of_the_engine_names_the_known_one(engine: RunningEngine) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{engine.endpoint_url}/_engine/nothing")  # noqa: S310
    with caught.value as error:
        assert error.code == 404
        assert "/_engine/health" in json.load(error)["message"]


def test_motos_reset_is_not_reachable(engine: RunningEngine) -> None:
    engine.client("sqs").create_queue(QueueName="kept")
    request = urllib.request.Request(  # noqa: S310
        f"{engine.endpoint_url}/moto-api/reset", method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)  # noqa: S310
    caught.value.close()
    assert engine.client("sqs").get_queue_url(QueueName="kept")["QueueUrl"]
