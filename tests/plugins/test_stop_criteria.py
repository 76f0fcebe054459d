"""A job is given up when it is silent while it trains, or waits too long for instances; not otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

import tests.dags.airflow_home  # noqa: F401
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard_airflow.triggers.stop_criteria import Patience, reason_to_stop

PATIENCE = Patience(heartbeat_timeout_s=60, max_wait_s=100)


def job(secondary: str = "Training", *, began: float = 0, **changes: Any) -> JobSnapshot:
    members = {"status": "InProgress", "secondary_status": secondary, **changes}
    spans = (Transition(status=secondary, start=began),)
    return JobSnapshot(kind="training", name="job", arn="arn", transitions=spans, **members)


def cause(snapshot: JobSnapshot, *, heartbeat_at: float | None, now: float) -> StopCause | None:
    verdict = reason_to_stop(snapshot, patience=PATIENCE, heartbeat_at=heartbeat_at, now=now)
    return verdict.cause if verdict else None


def test_silence_of_a_training_that_was_heard_of_is_a_hang() -> None:
    verdict = reason_to_stop(job(), patience=PATIENCE, heartbeat_at=10, now=70)

    assert verdict is not None
    assert verdict.cause is StopCause.HUNG
    assert (
        verdict.text == "its training printed no heartbeat for 1 min 00 s (heartbeat_timeout_s 60)"
    )


def test_silence_counts_from_when_the_instances_began_to_train_again() -> None:
    assert cause(job(began=200), heartbeat_at=10, now=259) is None
    assert cause(job(began=200), heartbeat_at=10, now=260) is StopCause.HUNG


def test_script_that_prints_no_such_lines_is_not_judged() -> None:
    assert cause(job(), heartbeat_at=None, now=1e9) is None


def test_silence_may_be_allowed() -> None:
    assert reason_to_stop(job(), patience=Patience(), heartbeat_at=0, now=1e9) is None


@pytest.mark.parametrize("secondary", ["Downloading", "Uploading", "Stopping", "Completed"])
def test_silence_outside_of_training_is_no_hang(secondary: str) -> None:
    assert cause(job(secondary), heartbeat_at=0, now=1e9) is None


@pytest.mark.parametrize("secondary", ["Pending", "Starting", "Interrupted", "Restarting"])
def test_waiting_for_instances_ends_at_its_bound(secondary: str) -> None:
    assert cause(job(secondary, began=50), heartbeat_at=0, now=149) is None
    assert cause(job(secondary, began=50), heartbeat_at=0, now=150) is StopCause.NO_CAPACITY


def test_interruption_and_new_start_are_one_wait() -> None:
    spans = (
        Transition(status="Training", start=0, end=50),
        Transition(status="Interrupted", start=50, end=90),
        Transition(status="Starting", start=90),
    )
    waiting = JobSnapshot(
        kind="training",
        name="job",
        arn="arn",
        status="InProgress",
        secondary_status="Starting",
        transitions=spans,
    )

    assert cause(waiting, heartbeat_at=49, now=150) is StopCause.NO_CAPACITY


@given(
    status=st.sampled_from(["Stopping", "Stopped", "Completed", "Failed"]), now=st.floats(0, 1e9)
)
def test_job_that_ends_is_left_alone(status: str, now: float) -> None:
    assert cause(job(status=status), heartbeat_at=0, now=now) is None


@pytest.mark.parametrize(
    ("now", "expected"), [(999, None), (1000, StopCause.WINDOW), (5000, StopCause.WINDOW)]
)
def test_job_is_stopped_before_the_window_of_its_plan_ends(
    now: float, expected: StopCause | None
) -> None:
    patience = Patience(plan_stops=(1000, 9000))
    verdict = reason_to_stop(job(began=500), patience=patience, heartbeat_at=None, now=now)
    assert (verdict.cause if verdict else None) is expected


def test_stop_of_an_earlier_window_or_of_a_waiting_job_is_none() -> None:
    patience = Patience(plan_stops=(1000, 9000))
    spans = (
        Transition(status="Pending", start=0, end=2000),
        Transition(status="Training", start=2000),
    )
    second = JobSnapshot(
        kind="training",
        name="job",
        arn="arn",
        status="InProgress",
        secondary_status="Training",
        transitions=spans,
    )
    waiting = job("Pending")

    for each in (second, waiting):
        assert reason_to_stop(each, patience=patience, heartbeat_at=None, now=3000) is None


def test_plan_stops_survive_the_deferral() -> None:
    patience = Patience(plan_stops=(1000.0, 9000.0))
    assert Patience.from_dict(json.loads(json.dumps(patience.to_dict()))) == patience
    assert "plan_stops" not in Patience().to_dict()
