"""A training plan's windows decide whether, when and for how long a training can use it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.errors import Severity
from trainyard.sagemaker_api.training_plan import TrainingPlanState
from trainyard.specs.capacity_rung import CapacityRung

HOUR, RESERVE = 3600.0, 300.0
RUNG = CapacityRung(instance_type="ml.p5.4xlarge", instance_count=1, training_plan="mine")
PLACE = "capacity_ladder[0].training_plan"


def answer(*windows: tuple[float, float], **members: Any) -> dict[str, Any]:
    """Return a DescribeTrainingPlan answer with windows in hours."""
    capacities = [
        {
            "InstanceType": "ml.p5.4xlarge",
            "StartTime": datetime.fromtimestamp(start * HOUR, tz=UTC),
            "EndTime": datetime.fromtimestamp(end * HOUR, tz=UTC),
        }
        for start, end in windows
    ]
    return {
        "TrainingPlanName": "mine",
        "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine",
        "Status": "Active",
        "TotalInstanceCount": 1,
        "AvailableInstanceCount": 1,
        "TargetResources": ["training-job"],
        "ReservedCapacitySummaries": capacities,
        **members,
    }


def plan(*windows: tuple[float, float], **members: Any) -> TrainingPlanState:
    return TrainingPlanState.from_describe(answer(*windows, **members))


def found(state: TrainingPlanState, rung: CapacityRung = RUNG, **arguments: Any) -> dict[str, Any]:
    """Return the severity of each finding by its text."""
    asked = {"reserve_s": RESERVE, "needed_s": HOUR, "has_other_rung": False, **arguments}
    findings = state.findings(rung, 2 * HOUR, place=PLACE, **asked)
    return {each.what: each.severity for each in findings}


def test_job_is_stopped_before_the_service_ends_its_instances() -> None:
    assert plan((0, 12), (24, 36)).stops(reserve_s=300) == (11 * HOUR + 1500, 35 * HOUR + 1500)


@pytest.mark.parametrize(
    ("now_h", "start_h"), [(-1, 0), (5, 5), (11.5, 24), (13, 24), (35.5, None), (40, None)]
)
def test_next_start_is_in_a_window_with_enough_time_left(
    now_h: float, start_h: float | None
) -> None:
    start = plan((0, 12), (24, 36)).next_start(now_h * HOUR, reserve_s=RESERVE)
    assert start == (None if start_h is None else start_h * HOUR)


def test_time_left_is_that_of_all_windows() -> None:
    left_s = plan((0, 12), (24, 36)).seconds_left(10 * HOUR, reserve_s=RESERVE)
    assert left_s == 2 * HOUR + 12 * HOUR - 2 * (1800 + RESERVE)


def test_plan_that_begins_later_than_the_rung_waits_is_closed() -> None:
    patient = CapacityRung(instance_type="ml.p5.4xlarge", training_plan="mine")
    hasty = CapacityRung(instance_type="ml.p5.4xlarge", training_plan="mine", max_wait_s=600)
    later = plan((3, 27), Status="Scheduled")

    assert later.closed(patient, 2 * HOUR, reserve_s=RESERVE) is None
    assert "max_wait_s is 600" in str(later.closed(hasty, 2 * HOUR, reserve_s=RESERVE))
    assert plan((0, 24), Status="Expired").closed(patient, 0, reserve_s=RESERVE) == (
        "plan 'mine' is Expired"
    )


def test_fitting_plan_with_time_left_has_no_findings() -> None:
    assert found(plan((0, 24))) == {}


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (plan((0, 24), TargetResources=["hyperpod-cluster"]), "is a plan for other resources"),
        (plan((0, 24), TotalInstanceCount=0), "has fewer instances than the tier"),
        (plan((0, 24), Status="Expired"), "cannot be used now, because plan 'mine' is Expired"),
        (plan((0, 3)), "has too little time left, so the training ends unfinished"),
    ],
    ids=["target", "count", "expired", "time"],
)
def test_plan_that_does_not_fit_is_an_error(state: TrainingPlanState, what: str) -> None:
    assert found(state) == {what: Severity.ERROR}


def test_other_type_is_an_error() -> None:
    other = CapacityRung(instance_type="ml.p5.48xlarge", training_plan="mine")
    assert found(plan((0, 24)), other) == {
        "has another instance type than the tier": Severity.ERROR
    }


def test_plan_of_another_rung_or_of_later_is_a_warning() -> None:
    short = found(plan((0, 3)), has_other_rung=True)
    later = found(plan((3, 27), Status="Scheduled"))

    assert list(short.values()) == [Severity.WARNING]
    assert later == {
        "has not begun; the training waits until 1970-01-01 03:00 UTC": Severity.WARNING
    }
