"""The search of a run's conf: its defaults, and what is refused before anything is paid."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainer.hyperparameters import Hyperparameters
from trainyard.errors import SpecError
from trainyard.specs.limits import MOST
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import (
    CHOICES,
    LIMITS,
    TUNABLE,
    SearchSettings,
    default_ranges,
    search_of,
    with_values,
)
from trainyard.specs.run_conf_tuning_rules import CONSECUTIVE, DIVIDING
from trainyard.specs.tuning_job import EarlyStopping, ObjectiveType
from trainyard.specs.tuning_job_ranges import CategoricalRange, ContinuousRange, IntegerRange

RATE = {"min_value": 1e-4, "max_value": 1e-2, "scaling_type": "Logarithmic"}


def searched(**params: Any) -> SearchSettings:
    search = search_of(RunConf.from_mapping({"tune": True, **params}))
    assert search is not None
    return search


def test_there_is_no_search_unless_it_is_asked_for() -> None:
    assert search_of(RunConf()) is None


def test_the_defaults_are_a_search_around_the_conf() -> None:
    search = searched(budget_usd=9, learning_rate=1e-3)

    assert (search.max_jobs, search.max_parallel_jobs, search.instance_count) == (12, 2, 2)
    assert (search.num_steps, search.eval_interval) == (100, 20)
    assert (search.metric_name, search.objective_type) == (
        "validation:loss",
        ObjectiveType.MINIMIZE,
    )
    assert search.budget_usd == pytest.approx(4.5)
    assert set(search.ranges) == {"learning_rate", "weight_decay", "warmup_steps"}
    rate = search.ranges["learning_rate"]
    assert isinstance(rate, ContinuousRange)
    assert (rate.min_value, rate.max_value) == pytest.approx((1.25e-4, 4e-3))


def test_without_a_budget_the_search_has_none() -> None:
    assert searched().budget_usd is None


@pytest.mark.parametrize(
    ("params", "steps"),
    [
        ({}, 100),
        ({"warmup_steps": 80}, 160),
        ({"tuning_max_steps": 60}, 60),
        ({"max_steps": 50, "warmup_steps": 40}, 50),
    ],
    ids=["quarter", "twice the warm-up", "as told", "never more than the training"],
)
def test_a_trial_is_a_short_training(params: dict[str, Any], steps: int) -> None:
    assert searched(**params).num_steps == steps


def test_what_hyperparameters_fix_is_not_searched_by_default() -> None:
    ranges = searched(hyperparameters={"weight_decay": 0.2}).ranges

    assert set(ranges) == {"learning_rate", "warmup_steps"}


def test_a_tables_network_searches_dropout() -> None:
    assert "dropout" in default_ranges(RunConf(model="mlp", target_column="y", tune=True))


def test_the_kind_of_a_range_follows_from_its_hyperparameter() -> None:
    ranges = searched(
        tuning_ranges={
            "learning_rate": RATE,
            "warmup_steps": {"min_value": 1, "max_value": 20},
            "global_batch_size": [16, 32],
            "precision": {"values": ["fp32", "bf16"]},
        }
    ).ranges

    kinds = [type(each) for each in ranges.values()]
    assert kinds == [ContinuousRange, IntegerRange, CategoricalRange, CategoricalRange]


def test_hyperband_stops_trials_by_its_own_rule() -> None:
    assert searched().early_stopping is EarlyStopping.OFF
    assert searched(tuning_early_stopping=True).early_stopping is EarlyStopping.AUTO
    hyperband = searched(tuning_early_stopping=True, tuning_strategy="Hyperband")
    assert hyperband.early_stopping is EarlyStopping.OFF


def test_a_grid_runs_each_combination_once() -> None:
    search = searched(
        tuning_strategy="Grid",
        tuning_ranges={"learning_rate": [1e-3, 2e-3], "warmup_steps": [4, 8]},
    )

    assert search.max_jobs == 4


def test_a_conf_with_a_search_is_read_back_from_its_own_data() -> None:
    params = {"tune": True, "tuning_ranges": {"learning_rate": RATE, "num_layers": [2, 4]}}
    conf = RunConf.from_mapping({**params, "tuning_max_jobs": 8})

    assert RunConf.from_mapping(json.loads(json.dumps(dataclasses.asdict(conf)))) == conf


def test_the_winners_values_go_where_the_conf_has_them() -> None:
    conf = RunConf(tune=True, hyperparameters={"clip_norm": 0.5})

    tuned = with_values(conf, {"learning_rate": 0.002, "warmup_steps": "12", "weight_decay": 0.3})

    assert (tuned.learning_rate, tuned.warmup_steps, tuned.tune) == (0.002, 12, False)
    assert tuned.hyperparameters == {"clip_norm": 0.5, "weight_decay": 0.3}


def test_limits_are_those_of_the_training_script() -> None:
    script = {each.name: each for each in dataclasses.fields(Hyperparameters)}

    assert set(TUNABLE) <= set(script)
    for name, (kind, least, most) in LIMITS.items():
        limits = script[name].metadata["limits"]
        assert str(script[name].type).startswith("int" if kind == "integer" else "float"), name
        assert limits.get("at_least", limits.get("above")) == least, name
        assert limits.get("at_most", math.inf) == most, name
    assert all(script[name].metadata["choices"] for name in CHOICES)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"tuning_strategy": "Genetic"}, "tuning_strategy: is not an allowed value; got 'Genetic'"),
        ({"tuning_objective": "loss"}, "tuning_objective: is not an allowed value; got 'loss'"),
        (
            {"tuning_objective": "train:samples_per_second"},
            "does not log; got train:samples_per_second; allowed: validation:loss, train:loss, train:tokens",
        ),
        (
            {"tuning_objective": "train:tokens_per_second", "model": "mlp", "target_column": "y"},
            "tuning_objective: is a metric that the model mlp does not log",
        ),
        ({"tuning_max_jobs": 0}, "tuning_max_jobs: is too small; got 0; allowed: at least 1"),
        ({"tuning_max_jobs": 751}, "tuning_max_jobs: is too large; got 751"),
        ({"tuning_max_parallel_jobs": 101}, "tuning_max_parallel_jobs: is too large"),
        ({"tuning_max_steps": 401}, "tuning_max_steps: is too large; got 401"),
        (
            {"tuning_max_steps": 40, "tuning_ranges": {"learning_rate": RATE}},
            "tuning_max_steps: leaves no step of a trial at the full learning rate; got 40 with",
        ),
        ({"tuning_max_run_s": 3601}, "tuning_max_run_s: is too large"),
        ({"tuning_max_time_s": 60}, "tuning_max_time_s: is too small; got 60"),
        ({"tuning_budget_share": 1}, "tuning_budget_share: is not a share of the budget; got 1"),
        ({"tuning_instance_count": 3}, "tuning_instance_count: is too large"),
        (
            {"instance_count": 4, "global_batch_size": 32, "tuning_instance_count": 3},
            "tuning_instance_count: does not divide instance_count",
        ),
        ({"tuning_ranges": {"learning_rat": RATE}}, "did you mean 'learning_rate'?"),
        (
            {"tuning_ranges": {"learning_rate": {"min_value": 2, "max_value": 1}}},
            "tuning_ranges.learning_rate.min_value: is not below max_value",
        ),
        (
            {"tuning_ranges": {"learning_rate": {**RATE, "min_value": 0}}},
            "tuning_ranges.learning_rate.min_value: is not positive, so it has no logarithm",
        ),
        (
            {"tuning_ranges": {"weight_decay": RATE}, "hyperparameters": {"weight_decay": 0.1}},
            "tuning_ranges.weight_decay: is also set in hyperparameters",
        ),
        (
            {"tuning_ranges": {"dropout": {"min_value": 0, "max_value": 1}}},
            "tuning_ranges.dropout: is outside its limits; got 1; allowed: 0 to 0.95",
        ),
        ({"tuning_ranges": {"num_layers": ["two"]}}, "has a value that is not a number; got 'two'"),
        ({"tuning_ranges": {"num_layers": [1.5]}}, "allows whole numbers only; got 1.5"),
        ({"tuning_strategy": "Grid"}, "is an interval, but Grid tries listed values only"),
        (
            {
                "tuning_strategy": "Grid",
                "tuning_max_jobs": 2,
                "tuning_ranges": {"num_layers": [1, 2, 3]},
            },
            "tuning_max_jobs: is less than the number of combinations of the ranges; Grid tries all of them",
        ),
        (
            {"tuning_ranges": {"num_layers": {"min_value": 1, "max_value": 4}}},
            "tuning_max_jobs: is more than the number of combinations of the ranges; got 12; allowed: at most 4",
        ),
        (
            {"tuning_ranges": {"warmup_steps": {"min_value": 1, "max_value": 100}}},
            "tuning_ranges.warmup_steps: makes a trial invalid, because warmup_steps leaves no step",
        ),
        (
            {"tuning_ranges": {"hidden_size": [128, 129]}, "tuning_max_jobs": 2},
            "tuning_ranges.hidden_size: makes a trial invalid, because hidden_size must be a multiple of 2 x num_heads",
        ),
        (
            {"tuning_ranges": {"precision": ["fp8"]}, "tuning_max_jobs": 1},
            "tuning_ranges.precision: makes a trial invalid, because precision is not an allowed value; got 'fp8'",
        ),
        (
            {"tuning_ranges": {"hidden_size": {"min_value": 64, "max_value": 256}}},
            'got 65 with num_heads 4; list the values to try, all of which must fit: {"values": [...]}',
        ),
        (
            {"tuning_ranges": {"global_batch_size": {"min_value": 16, "max_value": 64}}},
            "tuning_ranges.global_batch_size: makes a trial invalid, because global_batch_size must be a multiple of",
        ),
        (
            {
                "tuning_ranges": {"hidden_size": [72, 128], "num_heads": [4, 8]},
                "tuning_max_jobs": 4,
            },
            "(each head has the same even width); got 72 with num_heads 8; list the values to try",
        ),
        (
            {
                "tuning_ranges": {
                    "num_layers": {"type": "continuous", "min_value": 1, "max_value": 8}
                }
            },
            "tuning_ranges.num_layers: is continuous, but its hyperparameter is a whole number",
        ),
    ],
    ids=lambda v: v[:60] if isinstance(v, str) else "",
)
def test_a_wrong_search_is_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        RunConf.from_mapping({"tune": True, **params})

    assert says in str(caught.value)


# Divisors of these settings are many, so intervals of them sometimes fit.
DIVISIBLE = {
    "instance_count": 1,
    "hidden_size": 240,
    "num_heads": 4,
    "global_batch_size": 60,
    "micro_batch_size": 1,
}


@given(
    name=st.sampled_from([*itertools.chain(*DIVIDING)]),
    low=st.integers(1, 30),
    length=st.integers(1, 40),
    model=st.sampled_from([{}, {"model": "mlp", "target_column": "y"}]),
)
def test_a_range_is_accepted_if_every_value_of_it_can_be_trained(
    name: str, low: int, length: int, model: dict[str, Any]
) -> None:
    conf = {**DIVISIBLE, **model}

    def is_accepted(**params: Any) -> bool:
        try:
            RunConf.from_mapping({**conf, **params})
        except SpecError:
            return False
        return True

    ranges = {name: {"min_value": low, "max_value": low + length}}
    is_range = is_accepted(tune=True, tuning_ranges=ranges, tuning_max_jobs=1)
    assert is_range == all(is_accepted(**{name: low + more}) for more in range(length + 1))


def test_no_number_within_the_limits_has_as_many_consecutive_divisors_as_are_checked() -> None:
    assert math.lcm(*range(1, CONSECUTIVE + 1)) > max(MOST[dividend] for dividend, _ in DIVIDING)


def test_values_that_fit_one_another_are_searched_together() -> None:
    ranges = searched(
        tuning_ranges={"hidden_size": [96, 192], "num_heads": [6, 12]}, tuning_max_jobs=4
    ).ranges

    assert set(ranges) == {"hidden_size", "num_heads"}


def test_a_faulty_conf_is_not_blamed_on_each_range() -> None:
    with pytest.raises(SpecError) as caught:
        RunConf.from_mapping({"tune": True, "hidden_size": 100, "num_heads": 3})

    assert str(caught.value).startswith("RunConf: 1 problem(s)")


def test_a_search_that_is_off_is_not_looked_at() -> None:
    assert RunConf.from_mapping({"tuning_max_steps": 5000}).tuning_max_steps == 5000


def test_a_learning_rate_without_a_logarithm_is_refused_by_its_own_name() -> None:
    with pytest.raises(SpecError) as raised:
        RunConf.from_mapping({"tune": True, "learning_rate": 0})

    assert [each.where for each in raised.value.findings] == ["learning_rate"]
