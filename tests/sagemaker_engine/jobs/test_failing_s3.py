"""Jobs whose S3 fails while they download, train and upload: what the platform bears, and what it says."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.faults.reader import read_fault
from sagemaker_engine.faults.store import FaultStore
from tests.sagemaker_engine.jobs.conftest import BUCKET, channel, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sagemaker_engine.jobs.conftest import JobBench


CHECKPOINTS = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/ck"}}
CONTENT = os.urandom(1_000_001)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SERVICE_FAULT = "InternalServerError: We encountered an internal error. Please try again."


@pytest.fixture
def fault_store(bench: JobBench) -> Iterator[FaultStore]:
    opened = FaultStore(bench.settings.root)
    yield opened
    opened.clear()
    opened.close()


def put(fault_store: FaultStore, **document: Any) -> None:
    fault_store.replace([read_fault(document)])


def let(bench: JobBench, name: str, *, go: str) -> None:
    """Let a job go on that waits for /opt/ml/<go>."""
    folder = bench.settings.job_folder(bench.row(name).kind, name)
    (folder / "instances" / "algo-1" / "ml" / go).touch()


def until(go: str) -> str:
    return f"until [ -e /opt/ml/{go} ]; do sleep 0.02; done"


def test_training_goes_on_while_checkpoints_cannot_be_mirrored(
    bench: JobBench, fault_store: FaultStore
) -> None:
    command = (
        f"cd /opt/ml/checkpoints; echo 1 > step-1; {until('two')}; echo 2 > step-2; rm step-1; "
        f"echo trained on; {until('end')}"
    )
    bench.train("bears", command, **CHECKPOINTS)
    wait_for(lambda: bench.keys("ck/"), lambda keys: keys == ["ck/step-1"])

    put(fault_store, what="s3_error", status=503, key_prefix="ck/", count=None)
    let(bench, "bears", go="two")
    bench.wait_for_line("bears", "trained on")
    bench.wait_for_line("bears", "trainyard engine: cannot synchronize 'step-")
    assert bench.keys("ck/") == ["ck/step-1"]

    fault_store.clear()
    wait_for(lambda: bench.keys("ck/"), lambda keys: keys == ["ck/step-2"])
    bench.wait_for_line("bears", "trainyard engine: S3 accepts all changes again")
    let(bench, "bears", go="end")
    assert bench.wait("bears").status == "Completed"


def test_the_last_checkpoints_wait_for_an_outage_to_end(
    bench: JobBench, fault_store: FaultStore
) -> None:
    put(fault_store, what="s3_error", key_prefix="ck/", duration_s=2.0)
    row = bench.run("waits", "echo 9 > /opt/ml/checkpoints/step-9", **CHECKPOINTS)

    assert row.status == "Completed"
    assert bench.keys("ck/") == ["ck/step-9"]


def test_checkpoints_that_never_got_up_are_named(bench: JobBench, fault_store: FaultStore) -> None:
    put(fault_store, what="s3_error", operation="PutObject", key_prefix="ck/", count=None)
    row = bench.run("loses", "echo 9 > /opt/ml/checkpoints/step-9", **CHECKPOINTS)

    assert row.status == "Completed"
    assert bench.keys() == ["out/loses/output/model.tar.gz"]
    assert bench.log("loses")[-1] == (
        f"trainyard engine: cannot synchronize 'step-9' with s3://{BUCKET}/ck: InternalError (500): "
        "We encountered an internal error. Please try again.; these changes are lost"
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"what": "s3_error", "count": 3},
        {"what": "s3_truncate", "count": 3},
        {"what": "s3_stall", "duration_s": 0.3, "count": 2},
    ],
    ids=lambda fault: fault["what"],
)
def test_a_script_gets_whole_objects_through_failures(
    bench: JobBench, fault_store: FaultStore, fault: dict[str, Any]
) -> None:
    for key in ("ck/state", "in/file", "pipe/file"):
        bench.objects.put(BUCKET, key, CONTENT)
    put(fault_store, operation="GetObject", **fault)
    row = bench.run(
        "reads",
        "cd /opt/ml; cat input/data/piped_0 | sha256sum; sha256sum < input/data/train/file; "
        "sha256sum < checkpoints/state",
        InputDataConfig=[
            channel("train", f"s3://{BUCKET}/in"),
            channel("piped", f"s3://{BUCKET}/pipe", InputMode="Pipe"),
        ],
        **CHECKPOINTS,
    )

    assert row.status == "Completed", row.state.get("FailureReason")
    assert bench.log("reads") == [f"{SHA256}  -"] * 3
    assert len(fault_store.entries()[0].fired_at) == fault["count"]


@pytest.mark.parametrize(
    ("key", "members", "what"),
    [
        ("in/a", {"InputDataConfig": [channel("train", f"s3://{BUCKET}/in")]}, "Data"),
        ("ck/a", CHECKPOINTS, "Checkpoint"),
    ],
    ids=["channel", "checkpoint"],
)
@pytest.mark.parametrize(
    ("status", "begins", "says"),
    [
        (403, "ClientError: {what} download failed: ", "AccessDenied (403): Access Denied"),
        (503, f"{SERVICE_FAULT} ({{what}} download failed: ", "SlowDown (503)"),
    ],
    ids=["denied", "down"],
)
def test_data_that_s3_does_not_give_fails_the_job_in_the_services_words(
    bench: JobBench,
    fault_store: FaultStore,
    key: str,
    members: dict[str, Any],
    what: str,
    status: int,
    begins: str,
    says: str,
) -> None:
    bench.objects.put(BUCKET, key, CONTENT)
    put(fault_store, what="s3_error", status=status, operation="GetObject", count=None)
    row = bench.run("denied", "echo must not run", **members)

    assert row.status == "Failed"
    reason = row.state["FailureReason"]
    assert reason.startswith(begins.format(what=what) + f"cannot read s3://{BUCKET}/{key}: ")
    assert says in reason
    assert bench.log("denied") == []


def test_a_job_that_waits_for_its_data_can_be_stopped(
    bench: JobBench, fault_store: FaultStore
) -> None:
    bench.objects.put(BUCKET, "in/a", CONTENT)
    put(fault_store, what="s3_error", operation="GetObject", count=None)
    bench.train("stopped", "true", InputDataConfig=[channel("train", f"s3://{BUCKET}/in")])
    wait_for(lambda: fault_store.entries()[0].fired_at, bool)
    bench.store.request_stop(bench.row("stopped").kind, "stopped", at=time.time())

    assert bench.wait("stopped").status == "Stopped"


def test_the_model_waits_for_s3(bench: JobBench, fault_store: FaultStore) -> None:
    put(fault_store, what="s3_error", operation="PutObject", count=4)
    row = bench.run("uploads", "echo w > /opt/ml/model/weights; echo o > /opt/ml/output/data/o")

    assert row.status == "Completed"
    assert bench.archive("out/uploads/output/model.tar.gz") == {"weights": b"w\n"}
    assert bench.archive("out/uploads/output/output.tar.gz") == {"o": b"o\n"}


def test_a_model_that_s3_never_takes_is_the_services_fault(
    bench: JobBench, fault_store: FaultStore
) -> None:
    put(fault_store, what="s3_error", operation="PutObject", status=503, count=None)
    row = bench.run("homeless", "echo w > /opt/ml/model/weights")

    assert row.status == "Failed"
    reason = row.state["FailureReason"]
    assert reason.startswith(f"{SERVICE_FAULT} (Artifact upload failed: SlowDown (503)")
