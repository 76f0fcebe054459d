"""VolumeSizeInGB holds: for what a job gets, and for what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.jobs.disk_space import volume_of
from sagemaker_engine.jobs.job import HostPlan
from sagemaker_engine.state.jobs import ResourceKind
from tests.sagemaker_engine.jobs.conftest import BUCKET, IMAGE, channel

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

MIB = 2**20
FILLS = "fallocate -l 1100M /opt/ml/checkpoints/step-1; echo written; sleep 600"


def resources(instance_type: str = "ml.m5.large") -> dict[str, Any]:
    return {
        "ResourceConfig": {
            "InstanceType": instance_type,
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
        }
    }


def test_a_job_that_writes_more_than_its_volume_fails_as_its_write_would_have(
    bench: JobBench,
) -> None:
    row = bench.run("fills", f"mkdir -p /opt/ml/checkpoints; {FILLS}", **resources())

    assert row.status == "Failed"
    reason = row.state["FailureReason"]
    assert reason.startswith("AlgorithmError: OSError: [Errno 28] No space left on device: algo-1")
    assert "VolumeSizeInGB is 1" in reason
    assert row.state["SecondaryStatus"] == "Failed"


@pytest.mark.slow
def test_a_job_that_ends_with_a_full_volume_fails_too(bench: JobBench) -> None:
    row = bench.run("ends", "fallocate -l 1100M /opt/ml/model/weights", **resources())

    assert "No space left on device" in row.state.get("FailureReason", "")


def test_a_type_with_disks_of_its_own_takes_no_size(bench: JobBench) -> None:
    row = bench.run("nvme", "fallocate -l 1100M /opt/ml/scratch", **resources("ml.g5.xlarge"))

    assert row.status == "Completed"


@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_inputs_larger_than_the_volume_are_refused_before_anything_runs(
    bench: JobBench, mode: str
) -> None:
    bench.objects.put(BUCKET, "in/a", bytes(60 * MIB))
    channels = [channel(f"c{number}", f"s3://{BUCKET}/in", InputMode=mode) for number in range(18)]

    row = bench.run("large", "echo runs", InputDataConfig=channels, **resources())

    if mode == "File":
        assert row.status == "Failed"
        words = "ClientError: Data download failed:Insufficient disk space"
        assert row.state["FailureReason"] == words
        assert bench.log("large") == []
    else:
        assert row.status == "Completed", row.state["FailureReason"]


@pytest.mark.parametrize(
    ("request_", "instance_type", "size"),
    [
        ({"ResourceConfig": {"VolumeSizeInGB": 30}}, "ml.m5.large", 30 * 2**30),
        ({"ResourceConfig": {"VolumeSizeInGB": 30}}, "ml.p4d.24xlarge", None),
        ({"ResourceConfig": {}}, "ml.m5.large", None),
        (
            {"ProcessingResources": {"ClusterConfig": {"VolumeSizeInGB": 5}}},
            "ml.m5.large",
            5 * 2**30,
        ),
        ({"ResourceConfig": {"VolumeSizeInGB": 5}}, "local", 5 * 2**30),
    ],
)
def test_the_volume_is_that_of_the_request(
    request_: dict[str, Any], instance_type: str, size: int | None
) -> None:
    host = HostPlan(name="algo-1", group="g", instance_type=instance_type)

    assert volume_of(request_, host) == size


@pytest.mark.parametrize("is_large", [False, True])
def test_processing_jobs_have_a_volume_too(bench: JobBench, is_large: bool) -> None:
    bench.objects.put(BUCKET, "in/a", bytes(60 * MIB))
    inputs = [
        {
            "InputName": f"i{number}",
            "S3Input": {
                "S3Uri": f"s3://{BUCKET}/in",
                "LocalPath": f"/opt/ml/processing/i{number}",
                "S3DataType": "S3Prefix",
                "S3InputMode": "File",
            },
        }
        for number in range(18 if is_large else 1)
    ]
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    bench.submit(
        "processes",
        kind=ResourceKind.PROCESSING,
        AppSpecification={
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["/bin/sh", "-c", "fallocate -l 1100M /opt/ml/processing/x"],
        },
        ProcessingInputs=inputs,
        ProcessingResources={"ClusterConfig": cluster},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )

    row = bench.wait("processes", kind=ResourceKind.PROCESSING)

    words = "download failed:Insufficient disk space" if is_large else "No space left on device"
    assert words in row.state["FailureReason"]
