"""Estimate of a run: learned if there is something to learn from, else planned, and always in its bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.conftest import REPOSITORY
from trainer.hyperparameters import Hyperparameters
from trainyard.errors import ContractError
from trainyard.planning.estimate.measurement import JobMeasurement, RunMeasurement
from trainyard.planning.estimate.run_estimate import SPOT_SAVED, estimate_run
from trainyard.planning.estimate.work import EVAL_BATCHES, data_key, workload_of, works_of
from trainyard.planning.run_cost import run_cost
from trainyard.planning.run_plan import plan_run
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf

CONF = RunConf(max_source_bytes=2_000_000)
SCRIPT = ScriptConf(entry_point="train.py", source_dir="scripts", max_run_s=1800)
USD_PER_S = 0.115 / 3600
"""Of one ml.m5.large."""


def history_of(
    conf: Any, *, fixed_s: float = 20.0, loop_s: float = 100.0, **job: Any
) -> list[RunMeasurement]:
    """Return one earlier run of the conf: its training took both, its other jobs 10 s each."""
    jobs = [
        JobMeasurement(
            work=work,
            on_instances_s=fixed_s + loop_s if work.task_id == "train" else 10.0,
            loop_s=loop_s if work.task_id == "train" else None,
            wait_s=3.0,
            **job,
        )
        for work in works_of(conf)
    ]
    return [
        RunMeasurement(
            run_id="r", measured_at=1.0, between_jobs_s=7.0, jobs=tuple(jobs), data=data_key(conf)
        )
    ]


def test_same_conf_costs_what_it_cost_before() -> None:
    estimate = estimate_run(CONF, history=history_of(CONF))

    assert estimate.usd is not None
    assert estimate.usd.expected == pytest.approx(USD_PER_S * (2 * 120 + 10))
    assert estimate.seconds.expected == pytest.approx(120 + 10 + 2 * 3 + 7)
    assert [each.basis for each in estimate.jobs] == ["1 earlier job of the same kind"] * 2


def test_nothing_measured_is_planned_and_wide() -> None:
    estimate = estimate_run(CONF)

    assert estimate.usd is not None
    assert estimate.usd.high > 4 * estimate.usd.low
    assert {each.basis for each in estimate.jobs} == {"the planner's figures"}


def test_script_that_was_never_measured_is_its_longest_run() -> None:
    estimate = estimate_run(SCRIPT)

    assert estimate.usd is not None
    assert estimate.usd.expected == pytest.approx(2 * 1800 * USD_PER_S)


def test_script_is_learned_from_its_earlier_run() -> None:
    estimate = estimate_run(SCRIPT, history=history_of(SCRIPT, loop_s=40.0))

    assert estimate.usd is not None
    assert estimate.usd.expected == pytest.approx(2 * 60 * USD_PER_S)


def test_spot_is_cheaper_in_low_and_expected_and_not_in_high() -> None:
    conf = replace(CONF, use_spot_instances=True)
    (on_demand, *_), (spot, *_) = (
        estimate_run(each, history=history_of(CONF)).jobs for each in (CONF, conf)
    )

    assert on_demand.usd is not None
    assert spot.usd is not None
    assert spot.usd.expected == pytest.approx((1 - SPOT_SAVED) * on_demand.usd.expected, rel=0.01)
    assert spot.usd.low < spot.usd.expected
    assert spot.usd.high > on_demand.usd.high


def test_discount_of_spot_is_learned() -> None:
    conf = replace(CONF, use_spot_instances=True)

    train, _ = estimate_run(conf, history=history_of(CONF, saved_fraction=0.3)).jobs

    assert train.usd is not None
    assert train.usd.expected == pytest.approx(0.7 * 2 * 120 * USD_PER_S, rel=0.01)


def test_search_is_its_trials_by_what_trainings_took() -> None:
    conf = replace(CONF, tune=True, tuning_max_jobs=6, tuning_max_parallel_jobs=2)

    tune, train, _ = estimate_run(conf, history=history_of(CONF)).jobs

    assert tune.task_id == "tune"
    assert tune.usd is not None
    assert train.usd is not None
    # A quarter of the training's steps, six times, with six starts.
    assert tune.usd.expected == pytest.approx(6 * 2 * USD_PER_S * (20 + 100 / 4), rel=0.03)
    assert tune.seconds.expected == pytest.approx(3 * (20 + 100 / 4 + 3), rel=0.03)


def test_sharding_job_is_part_of_the_run() -> None:
    shard, *_ = estimate_run(replace(CONF, source="s3://b/raw/", shard_instance_count=2)).jobs

    assert shard.task_id == "shard"


@given(
    steps=st.integers(10, 100_000),
    spot=st.booleans(),
    loop_s=st.floats(0.1, 1e5),
    cap=st.none() | st.floats(0.01, 10),
)
def test_low_is_below_expected_below_high_below_ceiling_and_cap(
    steps: int, spot: bool, loop_s: float, cap: float | None
) -> None:
    conf = replace(CONF, max_steps=steps, use_spot_instances=spot, max_cost_usd=cap)
    ceiling = run_cost(conf, job_attempts=4).ceiling_usd

    estimate = estimate_run(conf, history=history_of(CONF, loop_s=loop_s), ceiling_usd=ceiling)

    assert estimate.usd is not None
    assert 0 < estimate.usd.low <= estimate.usd.expected <= estimate.usd.high
    assert estimate.usd.high <= min(each for each in (ceiling, cap) if each is not None)
    assert estimate.seconds.low <= estimate.seconds.expected <= estimate.seconds.high


def test_dearest_tier_is_in_the_high_and_the_cheapest_in_the_low() -> None:
    types = ("ml.m5.large", "ml.m5.xlarge")
    ladder = [{"instance_type": each, "use_spot_instances": False} for each in types]
    tiered = RunConf.from_mapping({"max_source_bytes": 2_000_000, "capacity_ladder": ladder})

    one, two = (estimate_run(each, history=history_of(CONF)).jobs[0] for each in (CONF, tiered))

    assert one.usd is not None
    assert two.usd is not None
    assert two.usd.expected == pytest.approx(one.usd.expected)
    assert two.usd.high == pytest.approx(2 * one.usd.high)


def test_tier_in_a_training_plan_costs_nothing() -> None:
    plan = {"instance_type": "ml.m5.large", "training_plan": "mine"}
    demand = {"instance_type": "ml.m5.large", "use_spot_instances": False}

    def training(*ladder: dict[str, Any]) -> Any:
        conf = RunConf.from_mapping(
            {"max_source_bytes": 2_000_000, "capacity_ladder": list(ladder)}
        )
        return estimate_run(conf, history=history_of(CONF)).jobs[0].usd

    alone, first, last, without = (
        training(plan), training(plan, demand), training(demand, plan), training(demand)
    )  # fmt: skip

    assert (alone.low, alone.expected, alone.high) == (0, 0, 0)
    assert (first.low, first.expected, first.high) == (0, 0, pytest.approx(without.high))
    assert (last.low, last.expected) == (0, pytest.approx(without.expected))


def test_example_of_the_documentation_is_a_run_that_would_start() -> None:
    path = REPOSITORY / "docs/examples/training_plan.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    plan_run(given, job_attempts=2)
    assert RunConf.from_mapping(given).rungs[0].training_plan == "p5-november"


def test_runs_of_one_workload_share_a_folder() -> None:
    assert workload_of(CONF) == workload_of(replace(CONF, num_layers=2, max_steps=7))
    assert workload_of(CONF) != workload_of(replace(CONF, strategy="fsdp"))


def test_validation_is_as_long_as_in_the_training_script() -> None:
    assert Hyperparameters.__dataclass_fields__["eval_batches"].default == EVAL_BATCHES


def test_measurement_is_read_back() -> None:
    (measurement,) = history_of(CONF)

    assert RunMeasurement.from_json(measurement.to_json()) == measurement


@pytest.mark.parametrize(
    "text",
    ["{", "[]", json.dumps({"format": "x", "version": 1}), json.dumps({"format": "x"})],
    ids=["cut off", "a list", "another format", "no version"],
)
def test_other_documents_are_no_measurement(text: str) -> None:
    with pytest.raises(ContractError, match="the document is not a measurement of a run"):
        RunMeasurement.from_json(text)
