"""Another attempt is paid for only where what was paid and what it could cost stay within the budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.cost.attempt_budget import attempt_ceiling, check_budget, paid_usd
from trainyard.errors import BudgetExceededError
from trainyard.specs.capacity_rung import CapacityRung

RUNG = CapacityRung(instance_type="ml.m5.large", instance_count=2)


def job(billable_s: int | None) -> dict[str, Any]:
    return {"instance_type": "ml.m5.large", "instance_count": 2, "billable_seconds": billable_s}


def test_ceiling_is_the_on_demand_price_for_all_of_max_run() -> None:
    assert attempt_ceiling(RUNG, max_run_s=3600) == pytest.approx(0.23)


def test_jobs_that_never_ran_cost_nothing() -> None:
    assert paid_usd([job(3600), job(None)]) == pytest.approx(0.23)


def test_refusal_names_both_sums() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        check_budget([job(3600)], ceiling_usd=0.23, on=str(RUNG), budget_usd=0.4)

    assert (
        "$0.23 paid for earlier attempts; another one on 2 x ml.m5.large spot costs up to $0.23"
        in str(caught.value)
    )
    assert caught.value.needed_usd == pytest.approx(0.46)


@given(paid_s=st.integers(0, 100_000), max_run_s=st.integers(1, 100_000), budget=st.floats(0.01, 9))
def test_no_attempt_that_passes_can_exceed_the_budget(
    paid_s: int, max_run_s: int, budget: float
) -> None:
    could_cost = 2 * 0.115 * (paid_s + max_run_s) / 3600
    try:
        ceiling_usd = attempt_ceiling(RUNG, max_run_s=max_run_s)
        check_budget([job(paid_s)], ceiling_usd=ceiling_usd, on=str(RUNG), budget_usd=budget)
    except BudgetExceededError:
        assert could_cost > budget * 0.9999
    else:
        assert could_cost <= budget * 1.0001


def test_unknown_type_cannot_be_bounded() -> None:
    unknown = CapacityRung(instance_type="ml.z9.huge")

    assert attempt_ceiling(unknown, max_run_s=3600) is None
    check_budget([], ceiling_usd=None, on=str(unknown), budget_usd=0.01)
