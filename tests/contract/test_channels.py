"""Input channels as a training script finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.test_checkpoints import log_of

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def channel(name: str, uri: str, mode: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}


@pytest.mark.parametrize(
    ("mode", "written"), [("File", "took it"), ("FastFile", "Read-only file system")]
)
def test_a_training_reads_a_channel_of_files(endpoint: Endpoint, mode: str, written: str) -> None:
    """A channel of FastFile mode is a file system that can only be read."""
    for name in ("a", "below/b"):
        endpoint.put(f"of-{mode}/{name}", name.encode())
    script = (
        "cd /opt/ml/input/data/train; find . -type f | sort | xargs cat; echo; tail -c 1 below/b; echo; "
        "(echo x >> a && echo took it) 2>&1; ls /opt/ml/input/data"
    )
    request = endpoint.training_request(
        script, InputDataConfig=[channel("train", endpoint.uri(f"of-{mode}/"), mode)]
    )

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Completed"
    lines = log_of(endpoint, request["TrainingJobName"])
    assert lines[:2] == ["abelow/b", "b"]
    assert written in lines[2]
    assert lines[3] == "train"


@pytest.mark.parametrize("name", [".", ".."])
def test_a_channel_name_that_is_no_folder_is_refused(endpoint: Endpoint, name: str) -> None:
    endpoint.put("channel/a")
    request = endpoint.training_request(
        InputDataConfig=[channel(name, endpoint.uri("channel/"), "File")]
    )

    with pytest.raises(ClientError, match=r"ValidationException.*Channel name"):
        endpoint.start(request)


@pytest.mark.parametrize("path", ["/", "//", "/a/..", "/opt/\0"])
def test_a_local_path_that_is_no_folder_is_refused(endpoint: Endpoint, path: str) -> None:
    checkpoints = {"S3Uri": endpoint.uri("checkpoints"), "LocalPath": path}
    output = {"S3Uri": endpoint.uri("out"), "LocalPath": path, "S3UploadMode": "EndOfJob"}
    outputs = {"Outputs": [{"OutputName": "out", "S3Output": output}]}

    for request in (
        endpoint.training_request(CheckpointConfig=checkpoints),
        endpoint.processing_request(ProcessingOutputConfig=outputs),
    ):
        with pytest.raises(ClientError, match=r"ValidationException.*LocalPath.*below /"):
            endpoint.start(request)


@pytest.mark.parametrize("name", ["x" * 256, "nul\0byte"], ids=["long", "nul"])
def test_a_key_that_no_file_can_have_is_the_users_fault(endpoint: Endpoint, name: str) -> None:
    prefix = endpoint.name("odd")
    endpoint.put(f"{prefix}/{name}")
    request = endpoint.training_request(
        InputDataConfig=[channel("train", endpoint.uri(f"{prefix}/"), "File")]
    )

    described = endpoint.run(request)

    assert described["TrainingJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("ClientError: ")
    assert "cannot become a file" in described["FailureReason"]
