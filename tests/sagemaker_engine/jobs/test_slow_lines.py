"""Lines between hosts and S3 that faults make slow: what an interruption leaves in S3, and what a start costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.s3.objects import ObjectInfo
from tests.sagemaker_engine.jobs.conftest import BUCKET, SPOT, put_faults, statuses, wait_for

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

LIFE = ["Starting", "Downloading", "Training"]
WRITING = """
cd /opt/ml/checkpoints; find . -type f -size +1000k -o -name small > /opt/ml/model/found
[ ! -e small ] || exit 0
echo 1 > small; until [ -e /opt/ml/go ]; do sleep 0.05; done
head -c 5000000 /dev/zero > large; echo step=1; sleep 60
"""
UPLINK: dict[str, Any] = {"id": "line", "what": "slow_uplink", "megabytes_per_s": 0.5}


def test_what_had_not_arrived_is_lost_with_the_hosts(bench: JobBench) -> None:
    """5 MB need 100 s at 0.05 MB/s; the hosts vanish as soon as the file is written.

    Its first bytes may have arrived: a file that grows is uploaded as it is.
    """
    slow = {**UPLINK, "megabytes_per_s": 0.05}
    fault_store = put_faults(bench, slow, {"id": "end", "what": "interrupt", "at": {"step": 1}})
    bench.train("job", WRITING, **SPOT)
    wait_for(lambda: bench.keys("checkpoints/"), bool)
    kind = bench.row("job").kind
    (bench.settings.job_folder(kind, "job") / "instances/algo-1/ml/go").touch()

    row = bench.wait("job")

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]
    assert bench.archive("out/job/output/model.tar.gz") == {"found": b"./small\n"}
    assert {each.fault.id: bool(each.fired_at) for each in fault_store.entries()} == {
        "line": True,
        "end": True,
    }


@pytest.mark.parametrize("folder", ["checkpoints", "model", "output/data"])
def test_a_job_that_ends_by_itself_waits_for_its_uplink(bench: JobBench, folder: str) -> None:
    put_faults(bench, {**UPLINK, "hosts": ["algo-1"]})

    row = bench.run("job", f"head -c 600000 /dev/urandom > /opt/ml/{folder}/last", **SPOT)

    *_, training, uploading, _ = row.state["SecondaryStatusTransitions"]
    assert [training["Status"], uploading["Status"]] == ["Training", "Uploading"]
    # On a busy machine the upload begins before the script has ended.
    assert uploading["EndTime"] - training["StartTime"] >= 1.0
    assert row.status == "Completed"


def test_channels_and_checkpoints_come_down_at_the_downlinks_pace(bench: JobBench) -> None:
    put_faults(bench, {"what": "slow_downlink", "megabytes_per_s": 0.5})
    bench.objects.put(BUCKET, "data/a", b"x" * 400_000)
    bench.objects.put(BUCKET, "checkpoints/a", b"x" * 400_000)
    channel = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}
    inputs = [{"ChannelName": "train", "DataSource": {"S3DataSource": channel}}]

    row = bench.run("job", "true", instances=2, InputDataConfig=inputs, **SPOT)

    assert row.status == "Completed"
    downloading = row.state["SecondaryStatusTransitions"][1]
    assert downloading["Status"] == "Downloading"
    assert downloading["EndTime"] - downloading["StartTime"] >= 1.6


def test_a_stop_ends_a_download_that_lasts(bench: JobBench) -> None:
    put_faults(bench, {"what": "slow_downlink", "megabytes_per_s": 0.001})
    bench.objects.put(BUCKET, "checkpoints/a", b"x" * 1_000_000)
    bench.train("job", "true", **SPOT)
    bench.wait("job", lambda row: statuses(row)[-1] == "Downloading")

    bench.store.request_stop(bench.row("job").kind, "job", at=1.0)

    assert bench.wait("job").status == "Stopped"


def test_a_fault_may_be_put_and_taken_back_while_the_job_runs(bench: JobBench) -> None:
    """18 MB need 36 s. Before the file is whole, its first bytes may arrive."""
    put_faults(bench, UPLINK)
    bench.train("job", "head -c 18000000 /dev/zero > /opt/ml/checkpoints/a; sleep 60", **SPOT)
    wait_for(lambda: put_faults(bench, UPLINK).entries()[0].fired_at, bool)
    assert not _is_whole(bench)

    put_faults(bench)

    wait_for(lambda: _is_whole(bench), bool)
    bench.store.request_stop(bench.row("job").kind, "job", at=1.0)
    assert bench.wait("job").status == "Stopped"


def _is_whole(bench: JobBench) -> bool:
    found = bench.objects.list(BUCKET, "checkpoints/a")
    return [each.size for each in found if isinstance(each, ObjectInfo)] == [18_000_000]


def test_a_channel_of_fast_file_mode_is_not_downloaded_first(bench: JobBench) -> None:
    """At a kilobyte a second, a million bytes would need a quarter of an hour."""
    put_faults(bench, {"what": "slow_downlink", "megabytes_per_s": 0.001})
    bench.objects.put(BUCKET, "data/a", b"x" * 1_000_000)
    channel = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}
    inputs = [
        {"ChannelName": "t", "DataSource": {"S3DataSource": channel}, "InputMode": "FastFile"}
    ]

    row = bench.run("job", "wc -c < /opt/ml/input/data/t/a", InputDataConfig=inputs)

    assert row.status == "Completed"
    assert bench.log("job") == ["1000000"]
