"""Checkpoints and channels as mounts of their own, also on machines that cannot do everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.sandbox import capabilities, network
from tests.sagemaker_engine.jobs.conftest import BUCKET, SPOT

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

CHANNEL = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}
INPUTS = [{"ChannelName": "train", "DataSource": {"S3DataSource": CHANNEL}}]
RENAME = """
import os
for folder in ("/opt/ml/checkpoints", "/opt/ml/input/data/train"):
    try:
        open("/opt/ml/a", "w").close()
        os.rename("/opt/ml/a", folder + "/a")
        print("renamed into", folder)
    except OSError as error:
        print("errno", error.errno, folder)
"""


@pytest.mark.parametrize(
    "features", [("mount", "pid", "net", "overlay"), ("mount", "pid")], ids="+".join
)
def test_a_rename_from_outside_crosses_devices(bench: JobBench, features: tuple[str, ...]) -> None:
    if capabilities.works(features, bench.settings.root / "probe") is not None:
        features = ("user", *features)
    capabilities.keep(bench.settings.root / "sandbox.json", features)
    bench.objects.put(BUCKET, "data/a", b"a")

    row = bench.run("job", f"python -c '{RENAME}'", InputDataConfig=INPUTS, **SPOT)

    assert row.status == "Completed"
    renames = [line for line in bench.log("job") if "/opt/ml" in line and "engine" not in line]
    assert renames == ["errno 18 /opt/ml/checkpoints", "errno 18 /opt/ml/input/data/train"]


def test_a_machine_without_mounts_says_what_differs(bench: JobBench) -> None:
    capabilities.keep(bench.settings.root / "sandbox.json", ())

    row = bench.run("job", 'echo 1 > "$SAGEMAKER_BASE_DIR/checkpoints/step-1"', **SPOT)

    assert row.status == "Completed"
    host = network.instance_address(0, own_network=False)
    assert any("EXDEV" in line for line in bench.log("job", host))
    assert bench.keys("checkpoints/") == ["checkpoints/step-1"]


def test_a_machine_without_mounts_refuses_checkpoints_outside_its_folder(bench: JobBench) -> None:
    capabilities.keep(bench.settings.root / "sandbox.json", ())
    elsewhere = {"S3Uri": f"s3://{BUCKET}/checkpoints", "LocalPath": "/checkpoints"}

    row = bench.run("job", "true", **{**SPOT, "CheckpointConfig": elsewhere})

    assert row.status == "Failed"
    assert (
        "LocalPath '/checkpoints' must begin with /opt/ml/ on this machine"
        in row.state["FailureReason"]
    )
