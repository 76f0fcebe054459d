"""A job under a cost cap is stopped while what is left still pays for its stop."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trainyard.cost.cost_cap import CostCap, usd_per_s
from trainyard.errors import BudgetExceededError, SpecError

RATE = 0.23 / 3600


def test_worked_example() -> None:
    cap = CostCap(max_cost_usd=1.0, stop_reserve_s=300)

    assert cap.left_s(paid_usd=0.2, usd_per_s=RATE) == pytest.approx(12_221.7, abs=0.1)
    assert usd_per_s(0.115, 2) == pytest.approx(RATE)


def test_unknown_price_cannot_be_capped() -> None:
    with pytest.raises(SpecError, match="max_cost_usd: cannot be enforced"):
        CostCap(max_cost_usd=1.0, stop_reserve_s=300).job_limit_s(
            paid_usd=0.0, usd_per_s=usd_per_s(None, 2), on="2 x ml.z9.huge"
        )


def test_refusal_names_what_is_paid_and_what_the_shortest_job_costs() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        CostCap(max_cost_usd=1.0, stop_reserve_s=300).job_limit_s(
            paid_usd=0.99, usd_per_s=RATE, on="2 x ml.m5.large"
        )

    assert "the shortest job and its stop (6 min 00 s on 2 x ml.m5.large) cost $0.023" in str(
        caught.value
    )


@given(
    cap=st.floats(0.001, 1e5),
    reserve=st.integers(120, 3600),
    price=st.floats(0.01, 200),
    count=st.integers(1, 64),
    paid=st.lists(st.floats(0, 1), max_size=6),
    stop_share=st.floats(0, 1),
)
def test_a_job_that_stops_at_its_limit_keeps_the_cap(
    cap: float, reserve: int, price: float, count: int, paid: list[float], stop_share: float
) -> None:
    """Whatever earlier jobs cost: the limit, and a stop within the reserve, are never more than what is left."""
    given, rate = CostCap(max_cost_usd=cap, stop_reserve_s=reserve), price * count / 3600
    spent = sum(each * cap for each in paid)
    if spent + (60 + reserve) * rate > cap:
        with pytest.raises(BudgetExceededError):
            given.job_limit_s(paid_usd=spent, usd_per_s=rate, on="2 x ml.m5.large")
        return
    limit_s = given.job_limit_s(paid_usd=spent, usd_per_s=rate, on="2 x ml.m5.large")
    assert spent + (limit_s + reserve * stop_share) * rate <= cap * (1 + 1e-9)
