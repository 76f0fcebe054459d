"""The spot life cycle by real jobs: interrupted, started again on empty hosts, ended in time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sagemaker_engine.faults.schedule import Schedule
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.state.jobs import ResourceKind
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    JobBench,
    put_faults,
    statuses,
    wait_for,
)

LIFE = ["Starting", "Downloading", "Training"]
COUNTING = """
set -e
cd /opt/ml/checkpoints
step=$(cat step 2>/dev/null || echo 0)
echo start step=$step
[ ! -e /opt/ml/model/left ] || echo leftover
touch /opt/ml/model/left
while [ $step -lt 4 ]; do
    step=$((step + 1))
    echo $step > next && mv next step
    echo "loss=0.$step step=$step"
    sleep 0.2
done
"""
"""Counts to 4 and keeps where it is in its checkpoint, 5 steps a second."""
LOSS = {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]}


def test_interrupted_job_goes_on_from_its_checkpoint_on_new_hosts(bench: JobBench) -> None:
    fault_store = put_faults(bench, {"id": "f1", "what": "interrupt", "at": {"step": 2}})

    row = bench.run("job", COUNTING, algorithm=LOSS, **SPOT)

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]
    starts = [line for line in bench.log("job") if line.startswith("start")]
    assert starts[0] == "start step=0"
    assert int(starts[1].rpartition("=")[2]) in {1, 2, 3}
    assert "leftover" not in bench.log("job")
    streams = sorted(
        each.name for each in (bench.settings.job_folder(row.kind, "job") / "logs").iterdir()
    )
    epochs = [int(name.removeprefix("algo-1-").removesuffix(".jsonl")) for name in streams]
    assert len(epochs) == 2
    assert epochs[0] < epochs[1] <= time.time() + 2
    final = {each["MetricName"]: each["Value"] for each in row.state["FinalMetricDataList"]}
    assert final == {"loss": 0.4}
    assert [len(each.fired_at) for each in fault_store.entries()] == [1]
    instances = bench.settings.job_folder(row.kind, "job") / "instances"
    wait_for(instances.exists, lambda are_there: not are_there)


@pytest.mark.parametrize(
    ("what", "members"),
    [("interrupt", SPOT), ("host_failure", {"RetryStrategy": {"MaximumRetryAttempts": 1}})],
    ids=["interrupted", "retried"],
)
def test_each_host_opens_a_new_log_stream_at_each_start(
    bench: JobBench, what: str, members: dict[str, Any]
) -> None:
    put_faults(bench, {"what": what, "attempt": 1, "at": {"step": 1}, "hosts": ["algo-2"]})

    row = bench.run("job", "echo step=1; sleep 1", instances=2, **members)

    assert row.status == "Completed"
    folder = bench.settings.job_folder(row.kind, "job") / "logs"
    epochs = {
        host: [int(each.stem.rpartition("-")[2]) for each in sorted(folder.glob(f"{host}-*"))]
        for host in ("algo-1", "algo-2")
    }
    assert epochs["algo-1"] == epochs["algo-2"]
    assert len(set(epochs["algo-1"])) == 2


def test_times_of_an_interrupted_job_never_run_back_and_it_pays_for_instances_only(
    bench: JobBench,
) -> None:
    put_faults(
        bench,
        {"what": "interrupt", "at": {"seconds": 1.2}},
        {"what": "no_capacity", "attempt": 2, "duration_s": 1.5},
    )

    state = bench.run("job", "sleep 2.2", **SPOT).state

    transitions = state["SecondaryStatusTransitions"]
    times = [each[key] for each in transitions for key in ("StartTime", "EndTime")]
    assert times == sorted(times)
    waited_s = next(
        each["EndTime"] - each["StartTime"]
        for each in transitions
        if each["Status"] == "Interrupted"
    )
    assert waited_s >= 1.5
    lasted_s = state["TrainingEndTime"] - state["TrainingStartTime"]
    assert state["TrainingTimeInSeconds"] <= lasted_s - 1.5 + 1
    assert 1 - state["BillableTimeInSeconds"] / state["TrainingTimeInSeconds"] >= 0.5


@pytest.mark.parametrize("state", ["Downloading", "Uploading"])
def test_interruption_while_the_platform_works_starts_the_job_again(
    bench: JobBench, state: str
) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"state": state}})

    row = bench.run("job", "echo w > /opt/ml/model/weights", **SPOT)

    before = LIFE[:2] if state == "Downloading" else [*LIFE, "Uploading"]
    assert statuses(row) == [*before, "Interrupted", *LIFE, "Uploading", "Completed"]
    assert bench.archive("out/job/output/model.tar.gz") == {"weights": b"w\n"}


def test_a_fault_may_interrupt_while_a_checkpoint_is_written(bench: JobBench) -> None:
    """S3 may hold the file's first bytes: a file that grows is uploaded as it is. The rest is lost."""
    put_faults(bench, {"what": "interrupt", "at": {"state": "Checkpointing"}})
    bench.objects.put(BUCKET, "checkpoints/whole", b"whole")
    script = """
    cd /opt/ml/checkpoints; cat whole half > /opt/ml/model/found 2> /dev/null
    exec 3> half; echo begun >&3; until [ -e /opt/ml/go ]; do sleep 0.05; done; echo ended >&3
    """
    bench.train("job", script, **SPOT)
    bench.wait("job", lambda row: statuses(row) == [*LIFE, "Interrupted", *LIFE])
    (bench.settings.job_folder(ResourceKind.TRAINING, "job") / "instances/algo-1/ml/go").touch()

    row = bench.wait("job")

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]
    found = bench.archive("out/job/output/model.tar.gz")["found"]
    assert found in {b"whole", b"wholebegun\n"}


def test_notice_gives_the_script_time_for_a_last_checkpoint(bench: JobBench) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"step": 1}, "notice_s": 30})
    script = """
    cd /opt/ml/checkpoints
    [ ! -e last ] || exit 0
    trap 'sleep 0.3; echo saved > last; exit 143' TERM
    echo step=1; sleep 60 & wait
    """

    row = bench.run("job", script, **SPOT)

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]
    assert bench.keys("checkpoints/") == ["checkpoints/last"]


def test_hosts_vanish_when_the_notice_is_over(bench: JobBench) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"step": 1}, "notice_s": 0.5})
    script = """
    cd /opt/ml/checkpoints
    [ ! -e seen ] || exit 0
    trap 'touch seen' TERM
    echo step=1; while true; do sleep 0.1; done
    """

    row = bench.run("job", script, **SPOT)

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]


def test_loss_of_one_host_interrupts_all(bench: JobBench) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"step": 1}, "hosts": ["algo-2"]})
    script = """
    cd /opt/ml/checkpoints
    [ ! -e survivor ] || exit 0
    echo step=1
    [ $(hostname) = algo-2 ] || { sleep 0.01; touch survivor; sleep 60; }
    sleep 60
    """

    row = bench.run("job", script, instances=2, **SPOT)

    assert statuses(row) == [*LIFE, "Interrupted", *LIFE, "Uploading", "Completed"]


def test_only_spot_jobs_are_interrupted(bench: JobBench) -> None:
    fault_store = put_faults(bench, {"what": "interrupt", "at": {"state": "Training"}})

    row = bench.run("job", "sleep 0.3")

    assert statuses(row) == [*LIFE, "Uploading", "Completed"]
    assert [each.fired_at for each in fault_store.entries()] == [()]


def test_seeded_schedule_interrupts_at_the_moment_it_draws(bench: JobBench) -> None:
    schedule = Schedule(seed=3, interruptions_per_hour=7200, max_interruptions=1)
    FaultStore(bench.settings.root).replace([], schedule)
    drawn = schedule.interruption("job", 1)
    assert drawn is not None
    assert drawn.at is not None
    assert drawn.at.seconds is not None

    row = bench.run("job", "sleep 2", **SPOT)

    assert statuses(row).count("Interrupted") == 1
    training = row.state["SecondaryStatusTransitions"][2]
    assert training["EndTime"] - training["StartTime"] >= drawn.at.seconds
    assert FaultStore(bench.settings.root).scheduled()[0]["subject"].startswith("job/1 of ")


def test_neighbor_of_a_prefix_with_a_slash_is_neither_restored_nor_deleted(
    bench: JobBench,
) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"step": 1}})
    bench.objects.put(BUCKET, "checkpoints-2/theirs", b"theirs")
    bench.objects.put(BUCKET, "checkpoints/ours", b"ours")
    script = """
    cd /opt/ml/checkpoints; ls > /opt/ml/model/found; rm ours || exit 0
    while true; do echo step=0; sleep 0.1; done
    """
    checkpoints = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/"}}
    bench.train("job", script, **SPOT | checkpoints)
    wait_for(lambda: bench.keys("checkpoints"), lambda keys: keys == ["checkpoints-2/theirs"])
    put_faults(bench, {"what": "interrupt", "at": {"state": "Training"}})

    bench.wait("job")

    assert bench.archive("out/job/output/model.tar.gz") == {"found": b""}
    assert bench.keys("checkpoints") == ["checkpoints-2/theirs"]


def test_job_that_never_gets_capacity_ends_by_its_wait_time(bench: JobBench) -> None:
    put_faults(bench, {"what": "no_capacity"})
    limits = {"StoppingCondition": {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}}

    row = bench.run("job", "true", **{**SPOT, **limits})

    assert (row.status, row.state["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    assert statuses(row) == ["Starting", "Stopping", "MaxWaitTimeExceeded"]
    assert "TrainingStartTime" not in row.state
    assert "BillableTimeInSeconds" not in row.state


def test_wait_time_ends_a_job_that_trains(bench: JobBench) -> None:
    limits = {"StoppingCondition": {"MaxRuntimeInSeconds": 6, "MaxWaitTimeInSeconds": 6}}

    row = bench.run("job", "sleep 60", **{**SPOT, **limits})

    assert row.status == "Stopped"
    assert statuses(row) == [*LIFE, "Stopping", "Uploading", "MaxWaitTimeExceeded"]
    assert "S3ModelArtifacts" in row.state["ModelArtifacts"]


def test_run_time_is_summed_over_attempts(bench: JobBench) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"seconds": 2.5}})
    limits = {"StoppingCondition": {"MaxRuntimeInSeconds": 3, "MaxWaitTimeInSeconds": 60}}

    row = bench.run("job", "sleep 60", **{**SPOT, **limits})

    assert (row.status, row.state["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    lasted = [
        each["EndTime"] - each["StartTime"]
        for each in row.state["SecondaryStatusTransitions"]
        if each["Status"] == "Training"
    ]
    assert len(lasted) == 2
    assert sum(lasted) >= 3
    assert lasted[1] < 3


@pytest.mark.parametrize("attempt", [1, 2], ids=["before-it-starts", "while-interrupted"])
def test_stop_ends_a_wait_for_capacity(bench: JobBench, attempt: int) -> None:
    put_faults(
        bench,
        {"what": "no_capacity", "attempt": attempt},
        {"what": "interrupt", "at": {"state": "Training"}},
    )
    bench.train("job", "sleep 60", **SPOT)
    if attempt == 2:
        bench.wait("job", lambda row: row.state["SecondaryStatus"] == "Interrupted")

    stopped_at = time.time()
    bench.store.request_stop(ResourceKind.TRAINING, "job", at=stopped_at)
    row = bench.wait("job")

    assert (row.status, row.state["SecondaryStatus"]) == ("Stopped", "Stopped")
    before = [*LIFE, "Interrupted"] if attempt == 2 else ["Starting"]
    assert statuses(row) == [*before, "Stopping", "Stopped"]


def test_stop_ends_a_notice(bench: JobBench) -> None:
    fault_store = put_faults(bench, {"what": "interrupt", "at": {"step": 1}, "notice_s": 300})
    bench.train("job", "trap '' TERM; echo step=1; while true; do sleep 0.1; done", **SPOT)
    wait_for(fault_store.entries, lambda entries: bool(entries[0].fired_at))

    bench.store.request_stop(ResourceKind.TRAINING, "job", at=time.time())
    row = bench.wait("job")

    assert statuses(row) == [*LIFE, "Stopping", "Uploading", "Stopped"]


def test_capacity_comes_when_the_shortage_is_taken_back(bench: JobBench) -> None:
    fault_store = put_faults(bench, {"what": "no_capacity"})
    bench.train("job", "true", **SPOT)
    wait_for(fault_store.entries, lambda entries: bool(entries[0].fired_at))

    fault_store.clear()

    assert bench.wait("job").status == "Completed"


def test_capacity_error_fails_the_job_in_the_services_words(bench: JobBench) -> None:
    put_faults(bench, {"what": "capacity_error", "job": "jo*"})

    row = bench.run("job", "true")

    assert row.status == "Failed"
    assert row.state["FailureReason"].startswith("CapacityError: Unable to provision requested ML")
    assert statuses(row) == ["Starting", "Failed"]
