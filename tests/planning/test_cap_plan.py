"""Preflight refuses a cap that cannot hold or pays for nothing, and keeps back what later tasks need."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.planning.run_cost import run_cap
from trainyard.planning.run_plan import plan_run
from trainyard.planning.script_plan import plan_script, script_cap
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf

LARGE_USD_PER_S = 0.115 / 3600
SCRIPT: dict[str, Any] = {"entry_point": "train.py", "source_dir": "code", "instance_count": 2}


def test_evaluation_and_its_stop_are_kept_back() -> None:
    parts = run_cap(RunConf(max_cost_usd=1.0, evaluation_max_run_s=600, stop_reserve_s=200))

    assert parts is not None
    assert parts.evaluation_usd == pytest.approx(LARGE_USD_PER_S * 800)
    assert parts.least_training_usd == pytest.approx(2 * LARGE_USD_PER_S * 260)
    assert parts.shard_usd == parts.search_usd == 0.0


def test_job_that_measures_a_stopped_training_is_kept_back_where_the_training_was_to_measure() -> (
    None
):
    parts = run_cap(RunConf(max_cost_usd=1.0, evaluation_place="training"))

    assert parts is not None
    assert parts.evaluation_usd > 0


def test_search_has_its_share_of_the_cap() -> None:
    parts = run_cap(RunConf(max_cost_usd=2.0, tune=True, tuning_budget_share=0.25))

    assert parts is not None
    assert parts.search_usd == pytest.approx(0.5)
    assert parts.after_sharding_usd == pytest.approx(
        0.5 + parts.least_training_usd + parts.evaluation_usd
    )


def test_cap_bounds_what_the_plan_says_a_run_can_cost() -> None:
    plan = plan_run({"max_cost_usd": 0.3}, job_attempts=4)

    assert plan.ceiling_usd == pytest.approx(0.3)
    assert plan.once_usd == pytest.approx(0.345)
    assert any("may stop the training before its last step" in str(w) for w in plan.warnings)
    assert plan_run({"max_cost_usd": 0.3, "budget_usd": 0.3}, job_attempts=4).ceiling_usd == 0.3


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"max_cost_usd": 0.1}, "max_cost_usd: is less than the cost of the shortest run"),
        ({"max_cost_usd": 0}, "max_cost_usd: is too small"),
        ({"max_cost_usd": 1, "stop_reserve_s": 60}, "stop_reserve_s: is too small"),
    ],
)
def test_cap_that_pays_for_nothing_is_refused(conf: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        plan_run(conf)


def test_unknown_price_with_a_cap_is_refused() -> None:
    with pytest.raises(SpecError, match=r"max_cost_usd: cannot be enforced.*ml\.c4\.xlarge"):
        plan_script({**SCRIPT, "instance_type": "ml.c4.xlarge", "max_cost_usd": 5.0})


def test_own_script_without_evaluation_keeps_nothing_back() -> None:
    parts = script_cap(ScriptConf(**SCRIPT, max_cost_usd=1.0))

    assert parts is not None
    assert parts.evaluation_usd == 0.0
    assert plan_script({**SCRIPT, "max_cost_usd": 0.2}, job_attempts=4).ceiling_usd == 0.2
