"""Instance groups of a job: each host knows its group, and has the channels of its group only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.sagemaker_engine.jobs.conftest import BUCKET, channel

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

pytestmark = pytest.mark.engine
GROUPS = [
    {"InstanceGroupName": "feed", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "train", "InstanceType": "ml.m5.large", "InstanceCount": 2},
]
REPORT = "ls /opt/ml/input/data; cat /opt/ml/input/config/resourceconfig.json; echo"


def test_a_host_has_the_place_and_the_channels_of_its_group(bench: JobBench) -> None:
    for name in ("raw", "shards"):
        bench.objects.put(BUCKET, f"{name}/one", b"data")

    row = bench.run(
        "job",
        REPORT,
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
        InputDataConfig=[
            channel("raw", f"s3://{BUCKET}/raw/", source={"InstanceGroupNames": ["feed"]}),
            channel("shards", f"s3://{BUCKET}/shards/", source={"InstanceGroupNames": ["train"]}),
        ],
    )

    assert row.status == "Completed"
    found = {}
    for host in ("algo-1", "algo-2", "algo-3"):
        *channels, config = bench.log("job", host)
        place = json.loads(config)
        found[host] = channels, place["current_group_name"], place["current_instance_type"]
    assert found == {
        "algo-1": (["raw"], "feed", "ml.c5.xlarge"),
        "algo-2": (["shards"], "train", "ml.m5.large"),
        "algo-3": (["shards"], "train", "ml.m5.large"),
    }
