"""A job's folder of checkpoints: what of S3 it is given, and what of it S3 is given while the job runs and after."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

MOVE = (
    'touch /opt/ml/a; python -c \'import os; os.rename("/opt/ml/a", "{folder}/a")\' 2>&1 | tail -1'
)


def keys(endpoint: Endpoint, prefix: str) -> list[str]:
    """Return the keys below a prefix of this session, without its beginning."""
    base = f"{endpoint.prefix}/"
    answer = endpoint.client("s3").list_objects_v2(Bucket=endpoint.bucket, Prefix=base + prefix)
    return [each["Key"].removeprefix(base) for each in answer.get("Contents", [])]


def body(endpoint: Endpoint, key: str) -> bytes:
    answer = endpoint.client("s3").get_object(
        Bucket=endpoint.bucket, Key=f"{endpoint.prefix}/{key}"
    )
    return bytes(answer["Body"].read())


def model(endpoint: Endpoint, described: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a completed job's model."""
    assert described["TrainingJobStatus"] == "Completed", described
    uri = described["ModelArtifacts"]["S3ModelArtifacts"]
    data = body(endpoint, uri.removeprefix(endpoint.uri()))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file}


def log_of(endpoint: Endpoint, name: str) -> list[str]:
    """Return the messages of a job's first host."""
    logs = endpoint.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    found = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/algo-1-")
    return [
        event["message"]
        for stream in found["logStreams"]
        for event in logs.get_log_events(
            logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
        )["events"]
    ]


def checkpointing(endpoint: Endpoint, script: str, key: str, **members: Any) -> dict[str, Any]:
    """Return the request of a job that keeps its checkpoints under a key of this session."""
    return endpoint.training_request(
        f"cd /opt/ml/checkpoints; {script}",
        CheckpointConfig={"S3Uri": endpoint.uri(key)},
        **members,
    )


def test_a_prefix_without_a_slash_pulls_its_neighbors_too(endpoint: Endpoint) -> None:
    endpoint.put("ddp-x1/step-1", b"own")
    endpoint.put("ddp-x16/step-2", b"neighbor's")
    script = "find . -type f | sort > /opt/ml/model/found; rm -f step-1"

    described = endpoint.run(checkpointing(endpoint, script, "ddp-x1"))

    assert model(endpoint, described) == {"found": b"./6/step-2\n./step-1\n"}
    assert keys(endpoint, "ddp-x1") == ["ddp-x1/6/step-2", "ddp-x16/step-2"]


def test_a_prefix_with_a_slash_pulls_only_what_is_below_it(endpoint: Endpoint) -> None:
    endpoint.put("run-1/step-1", b"own")
    endpoint.put("run-16/step-2", b"neighbor's")
    script = "find . -type f | sort > /opt/ml/model/found; echo 3 > step-3"

    described = endpoint.run(checkpointing(endpoint, script, "run-1/"))

    assert model(endpoint, described) == {"found": b"./step-1\n"}
    assert keys(endpoint, "run-1/") == ["run-1/step-1", "run-1/step-3"]


@pytest.mark.parametrize("folder", ["/opt/ml/checkpoints", "/opt/ml/input/data/train"])
def test_nothing_is_renamed_into_the_checkpoints_or_a_channel(
    endpoint: Endpoint, folder: str
) -> None:
    endpoint.put("mounted/data/a", b"a")
    channel = {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri("mounted/data/")}
    request = checkpointing(
        endpoint,
        MOVE.format(folder=folder),
        "mounted/checkpoints/",
        InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": channel}}],
    )

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Completed"
    assert any(
        "Invalid cross-device link" in line for line in log_of(endpoint, request["TrainingJobName"])
    )


def test_a_growing_file_is_uploaded_as_it_is(endpoint: Endpoint) -> None:
    script = "exec 3> model.pt; printf half >&3; until [ -e go ]; do sleep 0.1; done; printf ' and half' >&3"
    name = endpoint.start(checkpointing(endpoint, f"{script} & sleep 60", "growing/"))

    def so_far() -> bytes:
        return body(endpoint, "growing/model.pt") if keys(endpoint, "growing/model.pt") else b""

    wait_until(so_far, lambda seen: seen == b"half", clock=endpoint.clock, what="half an object")
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert endpoint.finished(name)["TrainingJobStatus"] == "Stopped"


def test_a_deletion_does_not_wait_for_anything(endpoint: Endpoint) -> None:
    endpoint.put("deleting/old", b"old")
    name = endpoint.start(checkpointing(endpoint, "rm old; sleep 60", "deleting/"))

    wait_until(
        lambda: keys(endpoint, "deleting/"),
        lambda seen: seen == [],
        clock=endpoint.clock,
        what="deletion in S3",
    )
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert endpoint.finished(name)["TrainingJobStatus"] == "Stopped"


ODD = {
    "fifo": ("mkfifo odd", "a named pipe"),
    "socket": (
        "python -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"odd\")'",
        "a socket",
    ),
    "not UTF-8": (r'touch "$(printf "odd\377")"', "UTF-8"),
    "link out of the container": ("ln -s /etc/passwd odd", "leads to /etc/passwd"),
    "link up and out": ("ln -s ../../../etc/passwd odd", "leads to /etc/passwd"),
    "link to nothing": ("ln -s gone odd", "is a broken link"),
    "folder linked to its parent": ("mkdir odd; ln -s .. odd/up", "contains it"),
}


@pytest.mark.parametrize(("make", "said"), ODD.values(), ids=ODD)
def test_an_odd_file_is_skipped_and_named_once_and_the_rest_goes_up(
    endpoint: Endpoint, make: str, said: str
) -> None:
    key = "odd-" + endpoint.name().rpartition("-")[2] + "/"
    request = checkpointing(endpoint, f"{make}; sleep 1; echo 2 > step-2", key)

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    assert keys(endpoint, key) == [f"{key}step-2"]
    told = [line for line in log_of(endpoint, request["TrainingJobName"]) if "odd" in line]
    assert len(told) == 1
    assert said in told[0]
    assert "not uploaded" in told[0]


def test_links_inside_the_container_are_followed(endpoint: Endpoint) -> None:
    script = (
        "mkdir step-1; echo 1 > step-1/model.pt; ln -s /opt/ml/checkpoints/step-1/model.pt latest.pt; "
        "ln -s step-1 latest; echo w > /opt/ml/model/weights; ln -s ../model/weights weights"
    )

    described = endpoint.run(checkpointing(endpoint, script, "linked/"))

    assert described["TrainingJobStatus"] == "Completed"
    assert keys(endpoint, "linked/") == [
        "linked/latest.pt",
        "linked/latest/model.pt",
        "linked/step-1/model.pt",
        "linked/weights",
    ]
    assert body(endpoint, "linked/latest.pt") == b"1\n"
    assert body(endpoint, "linked/weights") == b"w\n"


@pytest.mark.parametrize("make", ["mkfifo failure", "ln -s /etc/passwd failure"])
def test_an_odd_failure_file_is_no_reason(endpoint: Endpoint, make: str) -> None:
    described = endpoint.run(
        endpoint.training_request(f"cd /opt/ml/output; {make}; echo last words; exit 3")
    )

    assert described["TrainingJobStatus"] == "Failed"
    assert "root:" not in described["FailureReason"]
    assert "exit code: 3" in described["FailureReason"]


def test_an_uncompressed_model_holds_no_file_from_outside(endpoint: Endpoint) -> None:
    output = {"S3OutputPath": endpoint.uri("odd-model"), "CompressionType": "NONE"}
    script = (
        "cd /opt/ml/model; ln -s /etc/passwd x; mkfifo p; echo w > weights; ln -s weights alias; "
        "rm -r /opt/ml/output/data; ln -s /etc /opt/ml/output/data"
    )
    request = endpoint.training_request(script, OutputDataConfig=output)

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    base = f"odd-model/{request['TrainingJobName']}/output"
    assert keys(endpoint, base) == [f"{base}/model/alias", f"{base}/model/weights"]


def test_a_named_pipe_does_not_outlast_max_runtime(endpoint: Endpoint) -> None:
    request = checkpointing(
        endpoint,
        "mkfifo p; mkfifo /opt/ml/output/failure; sleep 600",
        "piped/",
        StoppingCondition={"MaxRuntimeInSeconds": 2},
    )

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Stopped"
    assert described["SecondaryStatus"] == "MaxRuntimeExceeded"
