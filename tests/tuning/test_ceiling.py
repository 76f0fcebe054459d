"""What a search can cost before it starts, and when a running one is stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import BudgetExceededError, SpecError
from trainyard.specs.tuning_job import TuningJobSpec
from trainyard.tuning.ceiling import (
    Ceiling,
    check_affordable,
    estimate,
    judge,
    spent_usd,
)
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trials import Trial

PRICE_PER_HOUR = 0.115
NOW = 1_700_000_000.0
CEILING = Ceiling(budget_usd=1.0, usd_per_s=0.01)
ENDED = Trial(
    training_job_name="s-001-x",
    status="Completed",
    objective=0.5,
    started_at=NOW - 130,
    ended_at=NOW - 110,
    billable_seconds=20.0,
    cost_usd=0.2,
)
RUNNING = Trial(training_job_name="s-002-x", status="InProgress", started_at=NOW - 5)


def spec(**changes: Any) -> TuningJobSpec:
    training = {
        "role": "arn:aws:iam::123456789012:role/Training",
        "output_path": "s3://bucket/output",
        "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "instance_type": "ml.m5.large",
        "max_run": 600,
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        **changes.pop("training", {}),
    }
    return TuningJobSpec.from_mapping(
        {
            "training": training,
            "hyperparameter_ranges": {
                "rate": {"type": "continuous", "min_value": 1, "max_value": 2}
            },
            "objective_metric_name": "loss",
            "objective_type": "Minimize",
            "max_jobs": 12,
            "max_parallel_jobs": 2,
            **changes,
        }
    )


def test_estimate_is_the_worked_example() -> None:
    found = estimate(spec())

    assert found.total_usd == pytest.approx(12 * 600 * PRICE_PER_HOUR / 3600)
    assert found.total_usd == pytest.approx(0.23)
    assert found.trial_usd == pytest.approx(0.23 / 12)
    assert found.wave_usd == pytest.approx(2 * 0.23 / 12)
    assert found.note == (
        "12 trials of at most 10 min 00 s at $0.115 an hour (on demand), 2 at a time"
    )


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"max_runtime_s": 1200}, 2 * 1200),
        ({"max_runtime_s": 36000}, 12 * 600),
        ({"max_jobs": None, "max_runtime_s": 3600}, 2 * 3600),
        ({"training": {"instance_count": 3}}, 3 * 12 * 600),
    ],
    ids=["time ends it", "jobs end it", "time alone", "instances"],
)
def test_estimate_is_bounded_by_trials_and_by_time(changes: Any, seconds: float) -> None:
    assert estimate(spec(**changes)).total_usd == pytest.approx(seconds * PRICE_PER_HOUR / 3600)


def test_search_that_nothing_bounds_has_no_total() -> None:
    criteria = {"complete_on_convergence": True}

    assert estimate(spec(max_jobs=None, completion_criteria=criteria)).total_usd is None


def test_unknown_price_is_no_price_and_holds_no_budget() -> None:
    odd = spec(training={"instance_type": "ml.zz9.large"}, budget_usd=3)

    assert estimate(odd).total_usd is None
    with pytest.raises(SpecError, match="budget_usd: cannot be enforced, because the price"):
        check_affordable(odd, estimate(odd), paid_usd=0.0)


def test_budget_that_does_not_reach_for_one_trial_is_refused() -> None:
    tight = spec(budget_usd=0.03)
    check_affordable(tight, estimate(tight), paid_usd=0.0)

    with pytest.raises(BudgetExceededError, match=r"lower training\.max_run") as raised:
        check_affordable(tight, estimate(tight), paid_usd=0.02)
    assert raised.value.needed_usd == pytest.approx(0.02 + 0.23 / 12)


def verdict(trials: list[Trial], *, max_runtime_s: int | None = None, **changes: Any) -> Any:
    return judge(
        trials,
        ceiling=replace(CEILING, **changes),
        created_at=NOW - 130,
        now=NOW,
        max_runtime_s=max_runtime_s,
    )


def test_trial_that_runs_has_cost_its_seconds_so_far() -> None:
    assert spent_usd([ENDED, RUNNING], ceiling=CEILING, now=NOW) == pytest.approx(0.2 + 0.05)


def test_second_on_spot_costs_what_it_did_for_those_that_ended() -> None:
    spot = replace(ENDED, billable_seconds=6.0, cost_usd=0.06)
    failed = replace(ENDED, status="Failed", objective=None, cost_usd=0.0)

    assert spent_usd([spot, RUNNING], ceiling=CEILING, now=NOW) == pytest.approx(0.06 + 5 * 0.003)
    assert spent_usd([failed, RUNNING], ceiling=CEILING, now=NOW) == pytest.approx(0.05)


def test_search_goes_on_while_the_next_end_is_within_the_budget() -> None:
    # 0.25 are spent, the running one needs 15 s more: 0.40.
    assert verdict([ENDED, RUNNING], budget_usd=0.41) is None


@pytest.mark.parametrize(
    ("trials", "budget_usd"),
    [
        ([ENDED, RUNNING], 0.39),
        ([ENDED, RUNNING], 0.25),
        ([ENDED, RUNNING, replace(RUNNING, started_at=None)], 0.54),
        ([RUNNING], 0.05),
    ],
    ids=["next end", "spent", "two would cost twice", "before the first result"],
)
def test_search_is_stopped_when_the_next_end_would_cross_the_budget(
    trials: list[Trial], budget_usd: float
) -> None:
    found = verdict(trials, budget_usd=budget_usd)

    assert found is not None
    assert found.cause is EndedBy.BUDGET
    assert "spent" in found.reason


def test_trial_that_is_about_to_be_launched_counts_where_none_runs() -> None:
    assert verdict([ENDED], budget_usd=0.41) is None
    assert verdict([ENDED], budget_usd=0.39) is not None


def test_search_that_has_run_all_its_trials_ends_by_itself() -> None:
    spent = {"ceiling": replace(CEILING, budget_usd=0.2), "created_at": NOW - 130, "now": NOW}

    assert judge([ENDED], **spent, max_jobs=1) is None
    assert judge([ENDED], **spent, max_jobs=2) is not None
    assert judge([ENDED, RUNNING], **spent, max_jobs=2) is not None


def test_look_that_would_come_too_late_is_not_waited_for() -> None:
    late = judge(
        [RUNNING],
        ceiling=replace(CEILING, budget_usd=0.1),
        created_at=NOW,
        now=NOW,
        reaction_s=5.0,
    )

    assert late is not None


def test_trials_that_the_time_limit_would_cut_are_not_begun() -> None:
    found = verdict([ENDED, RUNNING], max_runtime_s=130 + 14)

    assert found is not None
    assert found.cause is EndedBy.TIME
    assert verdict([ENDED, RUNNING], max_runtime_s=130 + 16) is None


def test_search_at_its_time_limit_is_left_to_the_service() -> None:
    assert verdict([ENDED, RUNNING], max_runtime_s=130) is None


def test_search_without_price_or_ceiling_goes_on() -> None:
    assert judge([RUNNING], ceiling=Ceiling(), created_at=NOW, now=NOW + 1e6) is None
    assert judge([RUNNING], ceiling=Ceiling(budget_usd=1.0), created_at=NOW, now=NOW + 1e6) is None


@given(
    took=st.lists(st.floats(1, 100), min_size=1, max_size=8),
    runs=st.lists(st.floats(0, 100), max_size=4),
    budget=st.floats(0.01, 20),
)
def test_search_that_may_go_on_has_money_left(
    took: list[float], runs: list[float], budget: float
) -> None:
    trials = [
        *(
            replace(ENDED, started_at=NOW - each, ended_at=NOW, cost_usd=each * 0.01)
            for each in took
        ),
        *(replace(RUNNING, started_at=NOW - each) for each in runs),
    ]
    spent = spent_usd(trials, ceiling=CEILING, now=NOW)

    if verdict(trials, budget_usd=budget) is None:
        assert spent is not None
        assert spent < budget
