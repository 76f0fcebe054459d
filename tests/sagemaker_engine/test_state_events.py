from __future__ import annotations

import json
from typing import Any

import pytest

from sagemaker_engine.state.events import state_changes, state_event
from sagemaker_engine.state.jobs import JobRow, ResourceKind


def job(kind: ResourceKind, state: dict[str, Any], *, stopped: bool = False) -> JobRow:
    return JobRow(
        kind=kind,
        name="job",
        arn=f"arn:aws:sagemaker:us-east-1:123456789012:{kind}-job/job",
        request={"RoleArn": "role"},
        state=state,
        tags={"team": "rail"},
        created_at=1.5,
        modified_at=2.0,
        stop_requested_at=1.0 if stopped else None,
        runner_pid=None,
        runner_start_ticks=None,
        revision=1,
    )


def training(*secondary: str, status: str) -> JobRow:
    transitions = [{"Status": each, "StartTime": 2.0} for each in secondary]
    state = {
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary[-1],
        "SecondaryStatusTransitions": transitions,
    }
    return job(ResourceKind.TRAINING, state)


def test_each_transition_of_a_training_job_is_a_change() -> None:
    changes = state_changes(
        training("Starting", "Training", "Stopping", "Stopped", status="Stopped")
    )
    assert [each["SecondaryStatus"] for each in changes] == [
        *("Starting", "Training", "Stopping", "Stopped")
    ]
    assert [each["TrainingJobStatus"] for each in changes] == [
        *("InProgress", "InProgress", "Stopping", "Stopped")
    ]


def test_every_start_and_interruption_of_a_spot_job_is_a_change() -> None:
    life = ("Starting", "Training", "Interrupted", "Starting", "Training", "Completed")

    changes = state_changes(training(*life, status="Completed"))

    assert [each["SecondaryStatus"] for each in changes] == list(life)
    assert [each["TrainingJobStatus"] for each in changes] == [*["InProgress"] * 5, "Completed"]


@pytest.mark.parametrize(
    ("status", "stopped", "expected"),
    [
        ("InProgress", False, ["InProgress"]),
        ("Stopping", True, ["InProgress", "Stopping"]),
        ("Stopped", True, ["InProgress", "Stopping", "Stopped"]),
        ("Failed", False, ["InProgress", "Failed"]),
    ],
)
def test_changes_of_a_processing_job(status: str, stopped: bool, expected: list[str]) -> None:
    row = job(ResourceKind.PROCESSING, {"ProcessingJobStatus": status}, stopped=stopped)
    assert [each["ProcessingJobStatus"] for each in state_changes(row)] == expected


def test_event_tells_job_and_times_in_milliseconds() -> None:
    row = training("Starting", status="InProgress")
    [change] = state_changes(row)
    event = state_event(row, change)
    detail = json.loads(event["Detail"])
    assert event["Source"] == "aws.sagemaker"
    assert event["Resources"] == [row.arn]
    assert detail["TrainingJobName"] == "job"
    assert detail["CreationTime"] == 1500
    assert detail["SecondaryStatusTransitions"] == [{"Status": "Starting", "StartTime": 2000}]
    assert detail["Tags"] == {"team": "rail"}
