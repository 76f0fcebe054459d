"""A job of two instance groups: one shares the work of a strategy, the other runs the script by itself."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = [
    pytest.mark.engine,
    pytest.mark.torch,
    pytest.mark.slow,
]

SCRIPT = """
import json, os
import torch, torch.distributed as dist

group, host = os.environ["SM_CURRENT_INSTANCE_GROUP"], os.environ["SM_CURRENT_HOST"]
facts = {
    "group": group,
    "instance_type": os.environ["SM_CURRENT_INSTANCE_TYPE"],
    "hosts": json.loads(os.environ["SM_HOSTS"]),
    "of_group": json.loads(os.environ["SM_CURRENT_INSTANCE_GROUP_HOSTS"]),
    "channels": {each: sorted(os.listdir(f"/opt/ml/input/data/{each}")) for each in os.listdir("/opt/ml/input/data")},
    "resource": json.load(open("/opt/ml/input/config/resourceconfig.json")),
}
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    facts |= {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "sum": total.item()}
    dist.destroy_process_group()
with open(f"{os.environ['SM_MODEL_DIR']}/{host}.json", "w") as file:
    json.dump(facts, file)
"""
GROUPS = [
    {"InstanceGroupName": "feed", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "train", "InstanceType": "ml.m5.large", "InstanceCount": 2},
]


def source(endpoint: Endpoint) -> dict[str, str]:
    """Store the script as the toolkit wants it; return the hyperparameters that run it on the group `train`."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(SCRIPT.encode())
        tar.addfile(member, io.BytesIO(SCRIPT.encode()))
    uri = endpoint.put("groups/sourcedir.tar.gz", data.getvalue())
    return {
        "sagemaker_program": json.dumps("train.py"),
        "sagemaker_submit_directory": json.dumps(uri),
        "sagemaker_torch_distributed_enabled": "true",
        "sagemaker_distribution_instance_groups": json.dumps(["train"]),
    }


def channel(endpoint: Endpoint, name: str, groups: list[str], **source: Any) -> dict[str, Any]:
    return {
        "ChannelName": name,
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": endpoint.uri(f"groups/{name}/"),
                "InstanceGroupNames": groups,
                **source,
            }
        },
    }


@pytest.fixture(scope="module")
def told(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """What each host found out, by its name."""
    for name in ("a", "b"):
        endpoint.put(f"groups/raw/{name}")
        endpoint.put(f"groups/shards/{name}")
    request = endpoint.training_request(
        AlgorithmSpecification={"TrainingImage": endpoint.image, "TrainingInputMode": "File"},
        HyperParameters=source(endpoint),
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
        InputDataConfig=[
            channel(endpoint, "raw", ["feed"]),
            channel(endpoint, "shards", ["train"], S3DataDistributionType="ShardedByS3Key"),
        ],
    )
    described = endpoint.run(request)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    bucket, _, key = (
        described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    )
    body = endpoint.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers()}
        return {
            name.rpartition("/")[2].removesuffix(".json"): json.loads(file.read())
            for name, file in files.items()
            if file
        }


def test_strategy_runs_on_its_group_and_the_other_runs_the_script_alone(told: Any) -> None:
    ranks = {host: (each.get("rank"), each.get("world_size")) for host, each in told.items()}

    assert ranks == {"algo-1": (None, None), "algo-2": (0, 2), "algo-3": (1, 2)}
    assert [told[host]["sum"] for host in ("algo-2", "algo-3")] == [2, 2]


def test_each_host_knows_its_group_and_everybody_s(told: Any) -> None:
    assert {host: each["group"] for host, each in told.items()} == {
        "algo-1": "feed",
        "algo-2": "train",
        "algo-3": "train",
    }
    assert told["algo-1"]["instance_type"] == "ml.c5.xlarge"
    assert told["algo-3"]["instance_type"] == "ml.m5.large"
    assert told["algo-3"]["of_group"] == ["algo-2", "algo-3"]
    for each in told.values():
        assert each["hosts"] == ["algo-1", "algo-2", "algo-3"]
        assert each["resource"]["instance_groups"] == [
            {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
            {
                "instance_group_name": "train",
                "instance_type": "ml.m5.large",
                "hosts": ["algo-2", "algo-3"],
            },
        ]


def test_channel_reaches_its_groups_only_and_is_shared_out_among_their_hosts(told: Any) -> None:
    channels = {host: each["channels"] for host, each in told.items()}

    assert channels["algo-1"] == {"raw": ["a", "b"]}
    assert sorted([channels["algo-2"], channels["algo-3"]], key=str) == [
        {"shards": ["a"]},
        {"shards": ["b"]},
    ]
