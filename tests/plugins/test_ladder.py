"""The rung of a task's next job follows from the jobs before it, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import tests.dags.airflow_home  # noqa: F401
from trainyard.errors import BudgetExceededError, CapacityError
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition
from trainyard.specs.capacity_rung import CapacityRung
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.jobs.ladder import (
    lacked_capacity,
    place_next,
    place_of,
    rung_index,
    rungs_of,
    spec_on_rung,
)

SPOT = CapacityRung(instance_type="ml.g5.xlarge", instance_count=2, max_wait_s=600)
OTHER = CapacityRung(instance_type="ml.g6.xlarge", instance_count=2)
DEMAND = CapacityRung(
    instance_type="ml.g5.xlarge", instance_count=2, use_spot_instances=False, max_wait_s=3600
)
RUNGS = (SPOT, OTHER, DEMAND)
HOUR = 3600


def job(rung: CapacityRung, ending: str = "failed", **changes: Any) -> JobSnapshot:
    """Return a job on the rung that ended in one of several ways."""
    members: dict[str, Any] = {"status": "Failed", "secondary_status": "Failed"}
    match ending:
        case "capacity error":
            members["failure_reason"] = "CapacityError: Unable to provision requested ML compute"
        case "quota":
            members["failure_reason"] = "ResourceLimitExceeded: The account-level service limit"
        case "max wait":
            members = {"status": "Stopped", "secondary_status": "MaxWaitTimeExceeded"}
        case "stopped waiting":
            members = {"status": "Stopped", "secondary_status": "Stopped"}
            members["transitions"] = waited(rung.max_wait_s or 0)
        case "max pending":
            members = {"status": "Stopped", "secondary_status": "Stopped", "max_pending_s": 500}
            members["transitions"] = waited(500)
        case "stopped early":
            members = {"status": "Stopped", "secondary_status": "Stopped"}
            members["transitions"] = waited((rung.max_wait_s or 2) - 1)
        case "infrastructure":
            members["failure_reason"] = "InternalServerError: We encountered an internal error"
        case "max run":
            members = {"status": "Stopped", "secondary_status": "MaxRuntimeExceeded"}
    return JobSnapshot(
        **{
            "kind": "training",
            "name": "job",
            "arn": "arn",
            "instance_type": rung.instance_type,
            "instance_count": rung.instance_count,
            "is_spot": rung.use_spot_instances,
            **members,
            **changes,
        }
    )


def waited(seconds: float) -> tuple[Transition, ...]:
    return (
        Transition(status="Starting", start=1000, end=1000 + seconds),
        Transition(status="Stopping", start=1000 + seconds, end=1001 + seconds),
    )


WITHOUT_CAPACITY = ["capacity error", "quota", "max wait", "stopped waiting", "max pending"]
OTHERWISE = ["failed", "stopped early", "infrastructure", "max run"]


def test_the_first_attempt_takes_the_first_rung() -> None:
    placement = place_next(RUNGS, [], max_run_s=HOUR)

    assert (placement.index, placement.rung, placement.is_last) == (0, SPOT, False)


@pytest.mark.parametrize("ending", WITHOUT_CAPACITY)
def test_no_capacity_leads_to_the_next_rung_and_says_why(ending: str) -> None:
    placement = place_next(RUNGS, [job(SPOT, ending)], max_run_s=HOUR)

    assert placement.rung == OTHER
    assert "no capacity on tier 0 (2 x ml.g5.xlarge spot)" in placement.reason


@pytest.mark.parametrize("ending", OTHERWISE)
def test_any_other_end_is_tried_again_on_the_same_rung(ending: str) -> None:
    assert place_next(RUNGS, [job(SPOT, ending)], max_run_s=HOUR).rung == SPOT


def test_what_was_waited_is_told() -> None:
    placement = place_next(RUNGS, [job(SPOT, "stopped waiting")], max_run_s=HOUR)

    assert placement.facts()["rung_waited_s"] == 600
    assert "it waited 10 min 00 s, and its max_wait_s is 10 min 00 s" in placement.reason


def test_an_unbounded_rung_is_not_left_for_a_stop_by_hand() -> None:
    stopped = job(OTHER, "stopped early", transitions=waited(100_000))

    assert lacked_capacity(stopped, OTHER) is None


def test_a_job_that_waited_and_then_ran_had_capacity() -> None:
    ran = (*waited(600)[:1], Transition(status="Training", start=1600, end=1700))
    stopped = job(SPOT, "stopped early", transitions=ran)

    assert place_next(RUNGS, [stopped], max_run_s=HOUR).rung == SPOT


def test_an_interruption_that_lasts_too_long_leads_on() -> None:
    began = (Transition(status="Training", start=0, end=50),)
    interrupted = (Transition(status="Interrupted", start=50, end=60),)
    again = (
        Transition(status="Starting", start=60, end=650),
        Transition(status="Stopped", start=650, end=650),
    )
    stopped = job(SPOT, "stopped early", transitions=(*began, *interrupted, *again))

    assert place_next(RUNGS, [stopped], max_run_s=HOUR).rung == OTHER


def test_a_ladder_that_is_used_up_starts_again() -> None:
    assert place_next(RUNGS, [job(DEMAND, "capacity error")], max_run_s=HOUR).index == 0


def test_quota_that_stays_full_skips_rungs() -> None:
    placement = place_next(RUNGS, [], max_run_s=HOUR, full_rungs=(0, 1))

    assert (placement.rung, placement.is_last) == (DEMAND, True)
    assert placement.reason == "the account's quota for tier 1 was used up"


def test_full_rungs_are_passed_over_beside_one_that_is_too_dear() -> None:
    dear = CapacityRung(instance_type="ml.p4d.24xlarge", instance_count=2, max_cost_usd=1.0)

    placement = place_next((SPOT, dear, OTHER, DEMAND), [], max_run_s=HOUR, full_rungs=(0,))
    after = place_next((SPOT, dear, OTHER, DEMAND), [], max_run_s=HOUR, full_rungs=(0, 2))

    assert (placement.index, after.index) == (2, 3)
    assert "tier 1 (2 x ml.p4d.24xlarge" in placement.reason


def test_a_job_that_stands_on_no_rung_begins_the_ladder() -> None:
    alien = job(CapacityRung(instance_type="ml.p5.48xlarge", instance_count=2))

    assert place_next(RUNGS, [alien], max_run_s=HOUR).index == 0
    assert place_of(RUNGS, alien, []) is None


@given(
    endings=st.lists(st.sampled_from(WITHOUT_CAPACITY + OTHERWISE), max_size=8),
    num_rungs=st.integers(1, 3),
)
def test_the_rung_is_the_number_of_capacity_failures_around_the_ladder(
    endings: list[str], num_rungs: int
) -> None:
    rungs = [CapacityRung(**{**_fields(each), "max_wait_s": 600}) for each in RUNGS[:num_rungs]]
    jobs: list[JobSnapshot] = []
    for ending in endings:
        jobs.append(job(place_next(rungs, jobs, max_run_s=HOUR).rung, ending))
    moves = sum(each in WITHOUT_CAPACITY for each in endings)
    placement = place_next(rungs, jobs, max_run_s=HOUR)

    assert placement.index == moves % num_rungs
    assert [rung_index(rungs, each) for each in jobs] == [
        sum(e in WITHOUT_CAPACITY for e in endings[:i]) % num_rungs for i in range(len(endings))
    ]
    assert all(place_of(rungs, each, jobs[:i]) is not None for i, each in enumerate(jobs))


@given(paid_s=st.integers(0, 20_000), max_cost_usd=st.floats(0.1, 10))
def test_a_rung_never_costs_more_than_its_money(paid_s: int, max_cost_usd: float) -> None:
    bounded = CapacityRung(instance_type="ml.m5.large", instance_count=2, max_cost_usd=max_cost_usd)
    paid = job(bounded, "infrastructure", training_seconds=paid_s, billable_seconds=paid_s)
    placement = place_next([bounded, OTHER], [paid], max_run_s=HOUR)
    usd = 2 * 0.115 * (paid_s + HOUR) / 3600

    if usd < max_cost_usd * 0.9999:
        assert placement.index == 0
    if usd > max_cost_usd * 1.0001:
        assert placement.index == 1
        assert "has cost" in placement.reason


def test_no_money_on_any_rung_is_an_error_that_says_so() -> None:
    bounded = CapacityRung(instance_type="ml.m5.large", instance_count=2, max_cost_usd=0.1)
    with pytest.raises(BudgetExceededError) as caught:
        place_next([bounded], [], max_run_s=HOUR)

    assert (
        "tier 0 (2 x ml.m5.large spot) has cost $0.00 so far, and another attempt may cost $0.23"
        in str(caught.value)
    )


def spec(**members: Any) -> TrainingJobSpec:
    return TrainingJobSpec.from_mapping(
        {
            "role": "arn:aws:iam::123456789012:role/Training",
            "output_path": "s3://bucket/output",
            "image_uri": "image:1",
            "checkpoint_s3_uri": "s3://bucket/checkpoints",
            "max_run": 7200,
            "instance_count": 2,
            **members,
        }
    )


def test_spot_rung_bounds_the_waiting_by_max_wait() -> None:
    made = spec_on_rung(spec(capacity_ladder=[_fields(SPOT)]), SPOT)

    assert (made.use_spot_instances, made.max_wait) == (True, 7200 + 600)
    assert made.max_pending_time_in_seconds is None


def test_spot_rung_without_a_bound_takes_the_specs_or_twice_max_run() -> None:
    ladder = [_fields(OTHER)]

    assert spec_on_rung(spec(capacity_ladder=ladder), OTHER).max_wait == 14400
    assert spec_on_rung(spec(capacity_ladder=ladder, max_wait=9000), OTHER).max_wait == 9000


def test_on_demand_rung_of_an_accelerated_type_bounds_the_pending_time() -> None:
    made = spec_on_rung(spec(capacity_ladder=[_fields(DEMAND)]), DEMAND)

    assert (made.use_spot_instances, made.max_wait) == (False, None)
    assert made.max_pending_time_in_seconds == 3600 + 300


def test_pending_time_is_that_of_the_spec_if_it_has_one() -> None:
    given = spec(capacity_ladder=[_fields(DEMAND)], max_pending_time_in_seconds=7200)

    assert spec_on_rung(given, DEMAND).max_pending_time_in_seconds == 7200


def test_pending_time_is_left_out_where_the_service_would_not_take_it() -> None:
    short = CapacityRung(**{**_fields(DEMAND), "max_wait_s": 60})
    plain = CapacityRung(**{**_fields(DEMAND), "instance_type": "ml.m5.large"})

    for rung in (short, plain):
        made = spec_on_rung(spec(capacity_ladder=[_fields(rung)]), rung)
        assert made.max_pending_time_in_seconds is None


def test_without_a_ladder_the_one_rung_is_the_specs_own_cluster() -> None:
    (rung,) = rungs_of(spec(instance_type="ml.m5.large"))

    assert str(rung) == "2 x ml.m5.large on demand"


def _fields(rung: CapacityRung) -> dict[str, Any]:
    return {name: getattr(rung, name) for name in type(rung).__dataclass_fields__}


PLAN = CapacityRung(instance_type="ml.g5.xlarge", instance_count=2, training_plan="mine")
PLAN_ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"


def test_rung_in_a_plan_is_never_on_spot_and_is_named_by_its_plan() -> None:
    assert not PLAN.use_spot_instances
    assert str(PLAN) == "2 x ml.g5.xlarge in plan 'mine'"


def test_job_in_a_plan_is_on_the_rung_of_its_plan() -> None:
    rungs = (DEMAND, PLAN)

    assert rung_index(rungs, job(PLAN, training_plan=PLAN_ARN)) == 1
    assert rung_index(rungs, job(DEMAND)) == 0
    assert rung_index(rungs, job(DEMAND, training_plan=f"{PLAN_ARN}-2")) is None


def test_rung_whose_plan_is_closed_is_passed_with_the_reason() -> None:
    placement = place_next(
        (PLAN, SPOT), [], max_run_s=HOUR, closed_rungs={0: "plan 'mine' is Expired"}
    )

    assert placement.index == 1
    assert (
        "tier 0 (2 x ml.g5.xlarge in plan 'mine') cannot be used, because plan 'mine' is Expired"
        in placement.reason
    )


def test_ladder_whose_plans_are_all_closed_lacks_capacity() -> None:
    with pytest.raises(CapacityError, match="no tier of the capacity ladder") as raised:
        place_next((PLAN,), [], max_run_s=HOUR, closed_rungs={0: "plan 'mine' is Expired"})
    assert "plan 'mine' is Expired" in str(raised.value)


def test_spec_on_a_rung_has_its_plan_and_no_other() -> None:
    spec = TrainingJobSpec(
        role="arn:aws:iam::123456789012:role/r",
        image_uri="image",
        output_path="s3://bucket/output",
        max_run=HOUR,
        capacity_ladder=(PLAN, SPOT),
    )
    plan, spot = (spec_on_rung(spec, each) for each in rungs_of(spec))
    assert (plan.training_plan, plan.use_spot_instances) == ("mine", False)
    assert (spot.training_plan, spot.use_spot_instances) == (None, True)
