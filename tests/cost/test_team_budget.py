"""A run that does not fit into its team's month is refused with who spent what, and what is left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.cost.team_budget import RunSpend, budget_of, month_of, over_budget
from trainyard.errors import ContractError, Finding


def spend(**changes: Any) -> RunSpend:
    return RunSpend(
        **{"team": "research", "month": "2026-11", "dag_id": "train", "run_id": "r", **changes}
    )


def found(*others: RunSpend, needed_usd: float | None = 10.0) -> Finding | None:
    return over_budget(
        others, team="research", month="2026-11", budget_usd=100.0, needed_usd=needed_usd
    )


def test_run_that_fits_is_not_refused() -> None:
    assert found(spend(spent_usd=90.0)) is None


def test_refusal_has_what_is_spent_by_whom_and_what_is_left() -> None:
    finding = found(
        spend(spent_usd=50.0, user="ana"),
        spend(spent_usd=11.5, user="ana"),
        spend(spent_usd=20.0, dag_id="nightly"),
        spend(reserved_usd=15.0, dag_id="tune", user="bo"),
    )

    assert finding is not None
    assert finding.got == (
        "a cost of up to $10.00 for this run, in addition to $81.50 spent and $15.00 reserved by unfinished runs, "
        "namely $61.50 in 2 runs of DAG train (ana), $20.00 in 1 run of DAG nightly, $15.00 in 1 run of DAG tune (bo)"
    )
    assert finding.allowed == "$3.50 left of $100.00"
    assert finding.next_step is not None
    assert "max_cost_usd to at most $3.50" in finding.next_step


def test_run_of_unknown_price_is_refused() -> None:
    finding = found(needed_usd=None)

    assert finding is not None
    assert finding.got == "an unknown cost for this run; nothing spent yet"


def test_many_spenders_are_cut_off_with_their_number() -> None:
    finding = found(*(spend(spent_usd=30.0, dag_id=f"dag {number}") for number in range(5)))

    assert finding is not None
    assert finding.got is not None
    assert finding.got.endswith(", the rest by 2 other spenders")


@given(
    spent=st.lists(st.floats(0, 60), max_size=4),
    reserved=st.lists(st.floats(0, 60), max_size=4),
    needed=st.floats(0.01, 120),
)
def test_accepted_runs_never_pass_the_budget_by_their_high(
    spent: list[float], reserved: list[float], needed: float
) -> None:
    runs = [spend(spent_usd=each) for each in spent]
    runs += [spend(reserved_usd=each) for each in reserved]

    if found(*runs, needed_usd=needed) is None:
        assert sum(spent) + sum(reserved) + needed <= 100.0 + 1e-9


def test_team_without_a_budget_of_its_own_has_that_of_any() -> None:
    budgets = {"research": 5.0, "*": 1.0}

    assert [budget_of(each, budgets) for each in ("research", "ads")] == [5.0, 1.0]
    assert budget_of("ads", {"research": 5.0}) is None


def test_what_the_run_itself_spent_before_it_was_cleared_counts() -> None:
    cleared = spend(spent_usd=90.0)

    assert cleared.reserving(20.0).counted_usd == 110.0
    assert found(cleared, needed_usd=20.0) is not None


@pytest.mark.parametrize(
    ("spent", "is_final", "counted"),
    [
        pytest.param(30.0, True, 30.0, id="over"),
        pytest.param(30.0, False, 60.0, id="a job still runs"),
        pytest.param(75.0, False, 75.0, id="it has cost more than was reserved"),
    ],
)
def test_reservation_counts_until_every_cost_is_known(
    spent: float, is_final: bool, counted: float
) -> None:
    assert spend(reserved_usd=60.0).closed(spent, is_final=is_final).counted_usd == counted


@given(spent=st.floats(0, 1e6), reserved=st.floats(0, 1e6), needed=st.floats(0, 1e6))
def test_run_that_is_not_over_never_counts_less_than_before(
    spent: float, reserved: float, needed: float
) -> None:
    before = spend(spent_usd=spent, reserved_usd=reserved)

    assert before.reserving(needed).counted_usd >= before.counted_usd
    assert before.closed(needed, is_final=False).counted_usd == pytest.approx(
        max(before.counted_usd, needed)
    )


def test_document_of_an_earlier_release_is_read() -> None:
    old = '{"team": "a", "month": "2026-11", "dag_id": "d", "run_id": "r", "user": null, '

    reserved = RunSpend.from_json(old + '"reserved_usd": 5.0, "spent_usd": null}')
    over = RunSpend.from_json(old + '"reserved_usd": 0.0, "spent_usd": 3.0}')

    assert [reserved.counted_usd, over.counted_usd] == [5.0, 3.0]


def test_unknown_key_of_a_document_is_ignored() -> None:
    one = spend(reserved_usd=1.5)

    assert RunSpend.from_json(json.dumps({**json.loads(one.to_json()), "note": "x"})) == one


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{}",
        spend().to_json().replace('"version": 1', '"version": 2'),
        spend().to_json().replace('"spent_usd": 0.0', '"spent_usd": NaN'),
        spend().to_json().replace('"spent_usd": 0.0', '"spent_usd": -5'),
    ],
    ids=["list", "no JSON", "no keys", "later version", "NaN", "negative"],
)
def test_document_without_usable_money_is_rejected(text: str) -> None:
    with pytest.raises(ContractError):
        RunSpend.from_json(text)


def test_money_of_a_run_is_read_back() -> None:
    one = spend(user="ana", reserved_usd=1.5)

    assert RunSpend.from_json(one.to_json()) == one
    assert json.loads(one.to_json())["version"] == 1


def test_month_is_utc() -> None:
    assert month_of(1795219200.0) == "2026-11"
