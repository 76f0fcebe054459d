"""The spot life cycle by real jobs: interrupted, started again on empty hosts, ended in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from include.local_engine.faults import FaultBook
from include.local_engine.faults.reader import read_plan
from tests.local_engine.runner.conftest import BUCKET, Yard

if TYPE_CHECKING:
    from include.local_engine.store import JobRow

COUNTING = """
set -e
cd /opt/ml/checkpoints
step=$(cat step 2>/dev/null || echo 0)
echo start step=$step
[ ! -e /opt/ml/model/left ] || echo leftover
touch /opt/ml/model/left
while [ $step -lt 6 ]; do
    step=$((step + 1))
    echo $step > next && mv next step
    echo "loss=0.$step step=$step"
    sleep 0.2
done
"""
"""Counts to 6 and keeps where it is in its checkpoint, 5 steps a second."""

SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 80},
    "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints"},
}


def put(yard: Yard, *faults: dict[str, Any], **schedule: Any) -> FaultBook:
    book = FaultBook(yard.settings.root)
    book.replace(*read_plan({"faults": list(faults), **schedule} if schedule else list(faults)))
    return book


def statuses(row: JobRow) -> list[str]:
    return [each["Status"] for each in row.state["SecondaryStatusTransitions"]]


LIFE = ["Starting", "Downloading", "Training"]


def test_interrupted_job_goes_on_from_its_checkpoint_on_new_hosts(yard: Yard) -> None:
    put(yard, {"id": "f1", "what": "interrupt", "at": {"step": 3}})

    row = yard.run("job", COUNTING, **SPOT)

    assert row.status == "Completed"
    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]
    starts = [line for line in yard.log("job") if line.startswith("start")]
    assert starts[0] == "start step=0"
    assert int(starts[1].rpartition("=")[2]) in {2, 3}
    assert "leftover" not in yard.log("job")
