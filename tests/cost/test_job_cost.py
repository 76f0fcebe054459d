"""Money is billable seconds times instances times price, and unknown stays unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.catalog.instances import catalogue
from trainyard.cost.job_cost import cluster_ceiling, cost_per_unit, job_cost, spot_line, total_usd
from trainyard.errors import SpecError

PRICED = sorted(n for n, t in catalogue().types.items() if t.price_usd_per_hour is not None)


def test_the_ceiling_is_every_instance_for_the_whole_of_max_run() -> None:
    estimate = cluster_ceiling({"ml.m5.large": 2}, max_run_s=3600)

    assert estimate.ceiling_usd == pytest.approx(0.23)
    assert estimate.note == (
        "2 x ml.m5.large at 0.115 USD/h for at most 1 h 00 min (on demand, us-east-1, 2025-06-30)"
    )


def test_the_ceiling_of_an_unknown_price_is_unknown_and_says_so() -> None:
    estimate = cluster_ceiling({"ml.p2.xlarge": 1}, max_run_s=60)

    assert estimate.ceiling_usd is None
    assert "price of ml.p2.xlarge is not in the catalogue" in estimate.note


def test_the_ceiling_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(SpecError):
        cluster_ceiling({"ml.m5.tiny": 1}, max_run_s=60)


def test_spot_keeps_the_on_demand_ceiling_and_says_why() -> None:
    estimate = cluster_ceiling({"ml.m5.large": 1}, max_run_s=3600, use_spot_instances=True)

    assert estimate.ceiling_usd == pytest.approx(0.115)
    assert "spot instances cost less" in estimate.note


def job(**changes: object) -> dict[str, object]:
    return {
        "instance_type": "ml.m5.large",
        "instance_count": 2,
        "training_seconds": 3600,
        "billable_seconds": 1800,
        **changes,
    }


def test_a_job_costs_its_billable_seconds_on_every_instance() -> None:
    cost = job_cost(job())

    assert cost.cost_usd == pytest.approx(0.115)
    assert cost.saved_usd == pytest.approx(0.115)
    assert cost.saved_fraction == pytest.approx(0.5)
    assert "2025-06-30" in cost.note


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"billable_seconds": None}, "has not reported the billable seconds"),
        ({"instance_type": "ml.p2.xlarge"}, "price of ml.p2.xlarge is not"),
        ({"instance_type": "ml.m5.large, ml.g5.xlarge"}, "is not in the catalogue"),
        ({"instance_type": None}, "price of the instances is not"),
    ],
)
def test_what_is_not_known_gives_no_amount(changes: dict[str, object], says: str) -> None:
    cost = job_cost(job(**changes))

    assert cost.cost_usd is None
    assert says in cost.note


def test_a_job_that_was_never_billed_costs_nothing() -> None:
    cost = job_cost(job(billable_seconds=0, training_seconds=0))

    assert cost.cost_usd == 0
    assert cost.saved_fraction is None


@given(
    name=st.sampled_from(PRICED),
    seconds=st.integers(0, 10**6),
    more=st.integers(1, 10**6),
    count=st.integers(1, 64),
)
def test_cost_grows_with_time_and_with_instances(
    name: str, seconds: int, more: int, count: int
) -> None:
    def dollars(billable: int, instances: int) -> float:
        cost = job_cost(
            job(instance_type=name, billable_seconds=billable, instance_count=instances)
        )
        assert cost.cost_usd is not None
        return cost.cost_usd

    assert dollars(seconds + more, count) > dollars(seconds, count)
    assert dollars(seconds + 1, count + 1) > dollars(seconds + 1, count)
    assert dollars(seconds, count) == pytest.approx(count * dollars(seconds, 1))


@given(name=st.sampled_from(PRICED), seconds=st.integers(1, 10**6), count=st.integers(1, 64))
def test_a_job_within_max_run_never_costs_more_than_its_ceiling(
    name: str, seconds: int, count: int
) -> None:
    ceiling = cluster_ceiling({name: count}, max_run_s=seconds).ceiling_usd
    cost = job_cost(job(instance_type=name, billable_seconds=seconds, instance_count=count))

    assert ceiling is not None
    assert cost.cost_usd == pytest.approx(ceiling)


def test_the_total_says_whether_it_is_whole() -> None:
    known, unknown = job_cost(job()), job_cost(job(billable_seconds=None))

    assert total_usd([known, known]) == (pytest.approx(0.23), True)
    assert total_usd([known, unknown]) == (pytest.approx(0.115), False)


def test_cost_per_unit_needs_both() -> None:
    assert cost_per_unit(2.0, 4) == 0.5
    assert cost_per_unit(None, 4) is None
    assert cost_per_unit(2.0, 0) is None


def test_costs_are_json() -> None:
    estimate = cluster_ceiling({"ml.m5.large": 1}, max_run_s=1)

    assert json.loads(json.dumps(job_cost(job()).to_dict()))["instance_count"] == 2
    assert json.loads(json.dumps(estimate.to_dict()))["max_run_s"] == 1


def test_a_spot_job_tells_what_it_waited_and_saved_in_one_line() -> None:
    job = {
        "is_spot": True,
        "interruptions": 2,
        "waiting_seconds": 40.0,
        "instance_type": "ml.m5.large",
        "instance_count": 2,
        "billable_seconds": 120,
        "training_seconds": 400,
    }

    assert spot_line(job) == (
        "spot: 2 interruptions, waited 40 s, billed 2 min 00 s of 6 min 40 s, saved 70% ($0.0179)"
    )


def test_a_spot_job_that_never_ran_tells_its_waiting_alone() -> None:
    job = {"is_spot": True, "interruptions": 0, "waiting_seconds": 600.0}

    assert spot_line(job) == "spot: 0 interruptions, waited 10 min 00 s"


@pytest.mark.parametrize("job", [{"is_spot": False}, {"is_spot": True, "kind": "tuning"}])
def test_a_job_on_demand_and_a_search_have_no_spot_line(job: dict[str, Any]) -> None:
    assert spot_line(job) is None


def test_a_job_in_a_training_plan_costs_nothing_and_says_why() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-november"
    note = "in training plan p5-november, whose fee is paid up front"
    snapshot = {"instance_type": "ml.p5.48xlarge", "billable_seconds": 3600, "training_plan": plan}

    ceiling = cluster_ceiling({"ml.p5.48xlarge": 2}, max_run_s=3600, training_plan=plan)

    assert (ceiling.ceiling_usd, ceiling.note) == (0.0, note)
    assert (job_cost(snapshot).cost_usd, job_cost(snapshot).note) == (0.0, note)


GROUPS = [
    {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1},
    {"instance_group_name": "train", "instance_type": "ml.g5.xlarge", "instance_count": 2},
]


def test_a_job_on_groups_costs_the_sum_of_its_groups() -> None:
    cost = job_cost(
        job(instance_type="ml.c5.xlarge, ml.g5.xlarge", instance_count=3, instance_groups=GROUPS)
    )

    assert cost.cost_usd == pytest.approx((0.204 + 2 * 1.408) / 2)
    assert cost.instance_count * (cost.price_usd_per_hour or 0) == pytest.approx(0.204 + 2 * 1.408)
    assert cost.note.startswith("1 x ml.c5.xlarge at 0.204 USD/h + 2 x ml.g5.xlarge at 1.408 USD/h")


def test_a_group_without_a_price_makes_the_cost_unknown() -> None:
    unpriced = [*GROUPS, {**GROUPS[0], "instance_type": "ml.p2.xlarge"}]

    cost = job_cost(job(instance_type="several", instance_count=4, instance_groups=unpriced))

    assert cost.cost_usd is None
    assert "price of ml.p2.xlarge" in cost.note
