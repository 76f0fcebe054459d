from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def statuses(described: dict[str, Any]) -> list[str]:
    return [each["Status"] for each in described["SecondaryStatusTransitions"]]


def test_create_returns_the_arn_that_describe_shows(endpoint: Endpoint) -> None:
    request = endpoint.training_request()
    created = endpoint.sagemaker.create_training_job(**request)
    name = request["TrainingJobName"]
    assert created["TrainingJobArn"].endswith(f":training-job/{name}")
    assert endpoint.describe(name)["TrainingJobArn"] == created["TrainingJobArn"]
    endpoint.finished(name)


def test_describe_repeats_the_request(endpoint: Endpoint) -> None:
    endpoint.put("data/one.txt")
    request = endpoint.training_request(
        HyperParameters={"learning_rate": "0.1"},
        Environment={"SOME": "value"},
        RetryStrategy={"MaximumRetryAttempts": 1},
        CheckpointConfig={"S3Uri": endpoint.uri("checkpoints")},
    )
    described = endpoint.run(request)
    for member in (
        "HyperParameters",
        "Environment",
        "RetryStrategy",
        "RoleArn",
        "CheckpointConfig",
    ):
        shown = described[member]
        if isinstance(shown, dict):
            shown = {key: shown[key] for key in request[member]}
        assert shown == request[member], member


def test_completed_job_went_through_all_statuses_in_order(endpoint: Endpoint) -> None:
    described = endpoint.run(endpoint.training_request())
    assert described["TrainingJobStatus"] == "Completed"
    assert described["SecondaryStatus"] == "Completed"
    seen = statuses(described)
    assert seen[0] == "Starting"
    assert seen[-1] == "Completed"
    order = ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert [status for status in seen if status in order] == order


def test_times_never_run_back(endpoint: Endpoint) -> None:
    described = endpoint.run(endpoint.training_request())
    times = [described["CreationTime"]]
    for transition in described["SecondaryStatusTransitions"]:
        times += [transition["StartTime"], transition["EndTime"]]
    assert times == sorted(times)
    assert described["TrainingStartTime"] <= described["TrainingEndTime"]
    assert described["TrainingEndTime"] <= described["LastModifiedTime"]


def test_billable_seconds_are_per_instance(endpoint: Endpoint) -> None:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    described = endpoint.run(endpoint.training_request(ResourceConfig=resources))
    lasted = (described["TrainingEndTime"] - described["TrainingStartTime"]).total_seconds()
    assert abs(described["TrainingTimeInSeconds"] - lasted) <= 1
    assert described["BillableTimeInSeconds"] <= described["TrainingTimeInSeconds"] + 1


def test_model_folder_becomes_model_tar_gz(endpoint: Endpoint) -> None:
    described = endpoint.run(
        endpoint.training_request("mkdir -p /opt/ml/model/sub; echo weights > /opt/ml/model/sub/a")
    )
    uri = described["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == endpoint.uri(f"output/{described['TrainingJobName']}/output/model.tar.gz")
    key = uri.removeprefix(f"s3://{endpoint.bucket}/")
    body = endpoint.client("s3").get_object(Bucket=endpoint.bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        member = archive.extractfile("sub/a") or archive.extractfile("./sub/a")
        assert member is not None
        assert member.read() == b"weights\n"


def test_channel_data_is_where_the_container_expects_it(endpoint: Endpoint) -> None:
    endpoint.put("channel/part-1.txt", b"one")
    endpoint.put("channel/deep/part-2.txt", b"two")
    source = {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri("channel/")}
    data = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
    files = "part-1.txt deep/part-2.txt"
    script = f"cd /opt/ml/input/data/train && cat {files} > /opt/ml/output/failure; exit 1"
    described = endpoint.run(endpoint.training_request(script, InputDataConfig=[data]))
    assert "onetwo" in described["FailureReason"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo it broke > /opt/ml/output/failure; exit 1", "AlgorithmError: it broke"),
        ("exit 3", "exit code: 3"),
    ],
    ids=["failure-file", "exit-code"],
)
def test_failing_script_fails_the_job_with_its_reason(
    endpoint: Endpoint, script: str, expected: str
) -> None:
    described = endpoint.run(endpoint.training_request(script))
    assert described["TrainingJobStatus"] == "Failed"
    assert described["SecondaryStatus"] == "Failed"
    assert described["FailureReason"].startswith("AlgorithmError: ")
    assert expected in described["FailureReason"]


def test_failure_reason_ends_at_1024_characters(endpoint: Endpoint) -> None:
    script = "head -c 5000 /dev/zero | tr '\\0' x > /opt/ml/output/failure; exit 1"
    described = endpoint.run(endpoint.training_request(script))
    assert 1000 <= len(described["FailureReason"]) <= 1024


def test_one_failing_host_fails_the_job(endpoint: Endpoint) -> None:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    script = 'if [ "$(hostname)" = algo-2 ]; then exit 1; fi; sleep 300'
    described = endpoint.run(endpoint.training_request(script, ResourceConfig=resources))
    assert described["TrainingJobStatus"] == "Failed"


def test_job_that_runs_too_long_is_stopped(endpoint: Endpoint) -> None:
    request = endpoint.training_request("sleep 300", StoppingCondition={"MaxRuntimeInSeconds": 1})
    described = endpoint.run(request)
    assert described["TrainingJobStatus"] == "Stopped"
    assert described["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_finished_job_can_be_deleted_and_its_name_used_again(endpoint: Endpoint) -> None:
    request = endpoint.training_request()
    name = endpoint.run(request)["TrainingJobName"]
    endpoint.sagemaker.delete_training_job(TrainingJobName=name)
    with pytest.raises(ClientError, match="Requested resource not found"):
        endpoint.describe(name)
    assert endpoint.run(request)["TrainingJobStatus"] == "Completed"


def test_running_job_cannot_be_deleted(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("sleep 300"))
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.delete_training_job(TrainingJobName=name)
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    endpoint.finished(name)


def test_warm_pool_retention_cannot_be_updated_without_a_warm_pool(endpoint: Endpoint) -> None:
    name = endpoint.run(endpoint.training_request())["TrainingJobName"]
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.update_training_job(
            TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
        )
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_update_changes_the_profiler_of_a_running_job(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("sleep 300"))
    endpoint.sagemaker.update_training_job(
        TrainingJobName=name, ProfilerConfig={"DisableProfiler": True}
    )
    assert endpoint.describe(name)["ProfilerConfig"]["DisableProfiler"] is True
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    endpoint.finished(name)
