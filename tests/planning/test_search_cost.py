"""What a search can cost is part of what its run can cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import BudgetExceededError, SpecError
from trainyard.planning.run_cost import run_cost, training_budget_usd
from trainyard.planning.run_plan import plan_run
from trainyard.planning.search_cost import SearchCost, search_cost
from trainyard.specs.run_conf import RunConf

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "tuning.json"
TRIAL = 2 * 0.115
"""USD of one trial: 2 x ml.m5.large for an hour."""


def cost(*, attempts: int = 1, **conf: Any) -> SearchCost:
    found = search_cost(RunConf(tune=True, **conf), attempts=attempts)
    assert found is not None
    return found


def test_a_run_without_a_search_pays_for_none() -> None:
    assert search_cost(RunConf()) is None
    assert run_cost(RunConf()).search_usd == 0


def test_every_trial_may_take_its_longest_time() -> None:
    assert cost().once_usd == pytest.approx(12 * TRIAL)
    assert cost(attempts=4).ceiling_usd == pytest.approx(4 * 12 * TRIAL)
    assert cost(tuning_instance_count=1).once_usd == pytest.approx(6 * TRIAL)
    assert cost(tuning_max_run_s=1800).once_usd == pytest.approx(6 * TRIAL)


def test_the_share_of_the_budget_bounds_all_attempts_together() -> None:
    assert cost(budget_usd=4.0, attempts=4).ceiling_usd == pytest.approx(2.0)
    assert cost(budget_usd=4.0).once_usd == pytest.approx(2.0)
    assert cost(budget_usd=400.0, attempts=2).ceiling_usd == pytest.approx(24 * TRIAL)


def test_the_time_of_the_search_bounds_its_trials() -> None:
    found = cost(tuning_max_time_s=3600)

    assert found.once_usd == pytest.approx(2 * TRIAL)
    assert found.note.startswith(
        "12 trials within 1 h 00 min, 2 at a time, each on 2 x ml.m5.large"
    )


def test_an_unknown_price_stays_unknown() -> None:
    found = cost(instance_type="ml.g6e.xlarge")

    assert (found.once_usd, found.ceiling_usd) == (None, None)


def test_the_run_pays_for_search_and_training() -> None:
    plain, plan = plan_run({}), plan_run({"tune": True})

    assert plan.ceiling_usd == pytest.approx((plain.ceiling_usd or 0) + 12 * TRIAL)
    assert (plan.search_usd, plan.trials, plan.trial_steps) == (pytest.approx(12 * TRIAL), 12, 100)
    assert "; search: 12 trials, each on 2 x ml.m5.large" in plan.cost_note
    assert (plain.search_usd, plain.trials) == (0, 0)


def test_a_budget_that_the_training_alone_would_keep_must_hold_the_search_too() -> None:
    assert plan_run({"budget_usd": 0.38})

    with pytest.raises(BudgetExceededError, match="lower max_run_s to 3485") as caught:
        plan_run({"budget_usd": 0.38, "tune": True, "tuning_max_run_s": 60})

    assert caught.value.needed_usd == pytest.approx(0.046 + 0.345)


def test_the_proposed_longest_training_keeps_the_budget() -> None:
    conf = {"budget_usd": 0.38, "tune": True, "tuning_max_run_s": 60}
    plan = plan_run({**conf, "max_run_s": 3485})

    assert plan.ceiling_usd == pytest.approx(0.38, abs=1e-3)


def test_a_share_that_holds_not_even_the_first_trials_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        plan_run({"budget_usd": 2.0, "tune": True, "tuning_budget_share": 0.2})

    assert (
        "tuning_budget_share: is too small for the first trials of the search; "
        "got $0.40 for the search, but the first 2 parallel trials can cost up to $0.46"
        in str(caught.value)
    )


def test_the_example_is_a_search_of_twelve_trials_two_at_a_time() -> None:
    conf = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    plan = plan_run(conf, job_attempts=4)

    assert (plan.trials, plan.trial_steps) == (12, 60)
    assert RunConf.from_mapping(conf).tuning_max_parallel_jobs == 2
    assert plan.warnings == ()


def test_training_may_spend_what_the_search_left() -> None:
    conf = RunConf(budget_usd=4.0, tune=True)
    evaluation = 0.115

    assert training_budget_usd(conf) == pytest.approx(4.0 - 2.0 - evaluation)
    assert training_budget_usd(conf, searched_usd=0.3) == pytest.approx(4.0 - 0.3 - evaluation)
