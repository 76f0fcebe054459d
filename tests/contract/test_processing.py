from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def s3_input(endpoint: Endpoint, name: str, key: str) -> dict[str, Any]:
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": endpoint.uri(key),
            "LocalPath": f"/opt/ml/processing/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
        },
    }


def s3_output(endpoint: Endpoint, name: str, key: str) -> dict[str, Any]:
    return {
        "OutputName": name,
        "S3Output": {
            "S3Uri": endpoint.uri(key),
            "LocalPath": f"/opt/ml/processing/{name}",
            "S3UploadMode": "EndOfJob",
        },
    }


def test_inputs_come_in_and_outputs_go_out(endpoint: Endpoint) -> None:
    endpoint.put("processing/in/text.txt", b"hello")
    key = endpoint.name("out")
    request = endpoint.processing_request(
        "tr a-z A-Z < /opt/ml/processing/source/text.txt > /opt/ml/processing/result/text.txt",
        ProcessingInputs=[s3_input(endpoint, "source", "processing/in/")],
        ProcessingOutputConfig={"Outputs": [s3_output(endpoint, "result", key)]},
    )
    described = endpoint.run(request)
    assert described["ProcessingJobStatus"] == "Completed", described
    found = endpoint.client("s3").get_object(
        Bucket=endpoint.bucket, Key=f"{endpoint.prefix}/{key}/text.txt"
    )
    assert found["Body"].read() == b"HELLO"


def test_describe_repeats_the_request(endpoint: Endpoint) -> None:
    request = endpoint.processing_request(Environment={"SOME": "value"})
    described = endpoint.run(request)
    for member in ("AppSpecification", "ProcessingResources", "RoleArn", "Environment"):
        assert described[member] == request[member], member
    assert described["ProcessingStartTime"] <= described["ProcessingEndTime"]


def test_failing_script_fails_the_job_with_its_exit_message(endpoint: Endpoint) -> None:
    described = endpoint.run(endpoint.processing_request("exit 4"))
    assert described["ProcessingJobStatus"] == "Failed"
    assert "4" in described["FailureReason"]


def test_stop_ends_a_running_job(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.processing_request("sleep 300"))
    endpoint.sagemaker.stop_processing_job(ProcessingJobName=name)
    assert endpoint.finished(name, processing=True)["ProcessingJobStatus"] == "Stopped"


def test_finished_job_is_not_stopped(endpoint: Endpoint) -> None:
    name = endpoint.run(endpoint.processing_request())["ProcessingJobName"]
    with pytest.raises(ClientError, match="is in status Completed") as caught:
        endpoint.sagemaker.stop_processing_job(ProcessingJobName=name)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_name_can_be_used_once(endpoint: Endpoint) -> None:
    request = endpoint.processing_request()
    endpoint.run(request)
    with pytest.raises(ClientError) as caught:
        endpoint.start(request)
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"


def test_finished_job_can_be_deleted(endpoint: Endpoint) -> None:
    name = endpoint.run(endpoint.processing_request())["ProcessingJobName"]
    endpoint.sagemaker.delete_processing_job(ProcessingJobName=name)
    with pytest.raises(ClientError, match="Could not find"):
        endpoint.describe(name, processing=True)


def test_list_finds_jobs_by_name_and_status(endpoint: Endpoint) -> None:
    stem = endpoint.name("many")
    for letter, script in {"a": "true", "b": "exit 1"}.items():
        request = endpoint.processing_request(script, ProcessingJobName=f"{stem}-{letter}")
        endpoint.run(request)
    found = endpoint.sagemaker.list_processing_jobs(NameContains=stem, StatusEquals="Failed")
    names = [each["ProcessingJobName"] for each in found["ProcessingJobSummaries"]]
    assert names == [f"{stem}-b"]


def resources(instance_type: str, **members: Any) -> dict[str, Any]:
    cluster = {"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 1, **members}
    return {"ProcessingResources": {"ClusterConfig": cluster}}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"RoleArn": "arn:aws:iam::123456789012:role/nobody-here"}, "Could not assume role"),
        ({"ProcessingJobName": "bad_name"}, "processingJobName"),
        (
            {
                "ProcessingResources": {
                    "ClusterConfig": {
                        "InstanceType": "ml.huge",
                        "InstanceCount": 1,
                        "VolumeSizeInGB": 1,
                    }
                }
            },
            "processingResources.clusterConfig.instanceType",
        ),
        (
            {"AppSpecification": {"ImageUri": "docker.io/library/python:3.12"}},
            "Requested image docker.io/library/python:3.12 not found",
        ),
        (resources("ml.p4d.24xlarge"), "processingResources.clusterConfig.instanceType"),
        (
            resources("ml.g5.xlarge", VolumeKmsKeyId="alias/ours"),
            r"a VolumeKmsKeyId when using an instance type with local storage \(ml\.g5\.xlarge\)",
        ),
        (
            resources("ml.g5.xlarge", VolumeSizeInGB=251),
            r"VolumeSizeInGB greater than the total size of the local instance storage .*250 GB",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 9 * 86400 + 1}},
            "stoppingCondition.maxRuntimeInSeconds",
        ),
    ],
    ids=[
        "role",
        "name",
        "instance-type",
        "image",
        "training-type",
        "volume-key",
        "volume",
        "nine-days",
    ],
)
def test_create_refuses(endpoint: Endpoint, members: dict[str, Any], expected: str) -> None:
    with pytest.raises(ClientError, match=expected) as caught:
        endpoint.start(endpoint.processing_request(**members))
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_create_refuses_an_input_that_is_not_there(endpoint: Endpoint) -> None:
    request = endpoint.processing_request(
        ProcessingInputs=[s3_input(endpoint, "source", "nothing-here/")]
    )
    with pytest.raises(ClientError, match="No S3 objects found under S3 URL"):
        endpoint.start(request)
