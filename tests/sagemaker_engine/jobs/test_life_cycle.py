from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.state.jobs import ResourceKind

SECONDARY = st.sampled_from(sorted(life_cycle.MESSAGES))
MOMENTS = st.floats(min_value=1e9, max_value=2e9, allow_nan=False)


def training_state(at: float = 1e9) -> dict[str, Any]:
    return {
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": at}],
    }


@given(steps=st.lists(st.tuples(SECONDARY, MOMENTS), min_size=1, max_size=12))
def test_times_never_run_back_whatever_the_clock_does(steps: list[tuple[str, float]]) -> None:
    state = training_state()

    for secondary, at in steps:
        life_cycle.enter(ResourceKind.TRAINING, state, secondary, at=at)

    transitions = state["SecondaryStatusTransitions"]
    times = [
        float(each[key]) for each in transitions for key in ("StartTime", "EndTime") if key in each
    ]
    assert times == sorted(times)
    assert all("EndTime" in each for each in transitions[:-1])
    assert state["SecondaryStatus"] == transitions[-1]["Status"]


def test_entering_a_status_twice_makes_one_transition() -> None:
    state = training_state()

    life_cycle.enter(ResourceKind.TRAINING, state, "Starting", at=1e9 + 1)

    assert len(state["SecondaryStatusTransitions"]) == 1


def test_a_stopping_job_stays_stopping_while_it_uploads() -> None:
    state = training_state()

    life_cycle.enter(ResourceKind.TRAINING, state, "Stopping", at=1e9 + 1)
    life_cycle.enter(ResourceKind.TRAINING, state, "Uploading", at=1e9 + 2)

    assert state["TrainingJobStatus"] == "Stopping"


def test_billable_seconds_count_from_download_to_the_end_of_the_upload() -> None:
    state = training_state()
    for secondary, after in (("Downloading", 10), ("Training", 12), ("Uploading", 40)):
        life_cycle.enter(ResourceKind.TRAINING, state, secondary, at=1e9 + after)

    life_cycle.finish(ResourceKind.TRAINING, state, status="Completed", at=1e9 + 42.5)

    assert state["BillableTimeInSeconds"] == 33
    assert state["TrainingTimeInSeconds"] == 33
    assert state["TrainingEndTime"] == 1e9 + 42.5


def test_a_job_that_never_got_instances_has_no_times() -> None:
    state = training_state()

    life_cycle.finish(ResourceKind.TRAINING, state, status="Failed", at=1e9 + 1, reason="x" * 3000)

    assert "TrainingStartTime" not in state
    assert "BillableTimeInSeconds" not in state
    assert len(state["FailureReason"]) == 1024


def test_max_runtime_is_a_way_to_stop() -> None:
    state = training_state()

    life_cycle.finish(
        ResourceKind.TRAINING, state, status="Stopped", secondary="MaxRuntimeExceeded", at=1e9 + 1
    )

    assert (state["TrainingJobStatus"], state["SecondaryStatus"]) == (
        "Stopped",
        "MaxRuntimeExceeded",
    )


@pytest.mark.parametrize("ended_as", ["Completed", "Failed", "Stopped"])
@pytest.mark.parametrize("kind", list(ResourceKind))
def test_nothing_moves_the_state_of_a_job_that_has_ended(kind: ResourceKind, ended_as: str) -> None:
    state: dict[str, Any] = {kind.status_key: "InProgress"}
    life_cycle.finish(kind, state, status=ended_as, at=1e9 + 1, reason="the first")
    ended = deepcopy(state)

    life_cycle.enter(kind, state, "Stopping", at=1e9 + 2)
    life_cycle.finish(kind, state, status="Failed", at=1e9 + 3, reason="the second")
    life_cycle.finish(kind, state, status="Completed", at=1e9 + 4)

    assert state == ended
