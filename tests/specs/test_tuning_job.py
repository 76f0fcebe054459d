"""A tuning job spec knows what it alone can get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.specs.tuning_job import SearchStrategy, TuningJobSpec
from trainyard.specs.tuning_job_ranges import (
    CategoricalRange,
    ContinuousRange,
    IntegerRange,
    Scaling,
    read_range,
)

RATE = {
    "type": "continuous",
    "min_value": 1e-4,
    "max_value": 0.1,
    "scaling_type": "Logarithmic",
}
TRAINING: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/Training",
    "output_path": "s3://bucket/output",
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
    "entry_point": "train.py",
    "instance_type": "ml.m5.large",
    "max_run": 600,
    "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    "hyperparameters": {"epochs": 3},
}
GOOD: dict[str, Any] = {
    "training": TRAINING,
    "hyperparameter_ranges": {"rate": RATE, "color": ["red", "green"]},
    "objective_metric_name": "loss",
    "objective_type": "Minimize",
    "max_jobs": 4,
    "max_parallel_jobs": 2,
}


def refusal(**changes: Any) -> str:
    training = {**TRAINING, **changes.pop("training", {})}
    with pytest.raises(SpecError) as caught:
        TuningJobSpec.from_mapping({**GOOD, "training": training, **changes})
    return str(caught.value)


def test_ranges_are_read_by_their_kind() -> None:
    layers = {"type": "integer", "min_value": "1", "max_value": 8}
    spec = TuningJobSpec.from_mapping(
        {**GOOD, "hyperparameter_ranges": {"rate": RATE, "n": layers}}
    )

    assert spec.ranges["rate"] == ContinuousRange(
        min_value=1e-4, max_value=0.1, scaling_type=Scaling.LOGARITHMIC
    )
    assert spec.ranges["n"] == IntegerRange(min_value=1, max_value=8)
    assert read_range(["sgd", 3]) == CategoricalRange(values=("sgd", 3))
    assert spec.categorical == frozenset()


def test_grid_knows_how_many_trials_it_has() -> None:
    ranges = {"color": ["red", "green"], "size": [1, 2, 3]}
    grid = {**GOOD, "strategy": "Grid", "max_jobs": None, "hyperparameter_ranges": ranges}
    spec = TuningJobSpec.from_mapping(grid)

    assert spec.strategy is SearchStrategy.GRID
    assert spec.num_trials == 6
    assert spec.categorical == {"color", "size"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"max_job": 3}, "did you mean 'max_jobs'"),
        ({"strategy": "Evolution"}, "one of Bayesian, Random, Grid, Hyperband"),
        ({"objective_type": "Minimise"}, "one of Minimize, Maximize"),
        (
            {"objective_metric_name": "los"},
            "so SageMaker could not read it from a trial's log; got 'los'; allowed: loss",
        ),
        ({"hyperparameter_ranges": {}}, "hyperparameter_ranges: is empty"),
        (
            {"hyperparameter_ranges": {"rate": {**RATE, "min_value": 1}}},
            "hyperparameter_ranges.rate.min_value: is not below max_value; got 1 to 0.1",
        ),
        (
            {"hyperparameter_ranges": {"rate": {**RATE, "min_value": 0}}},
            "hyperparameter_ranges.rate.min_value: is not positive, so it has no logarithm",
        ),
        (
            {"hyperparameter_ranges": {"rate": {**RATE, "type": "continous"}}},
            "hyperparameter_ranges.rate.type: is not a kind of range; got 'continous'",
        ),
        (
            {"hyperparameter_ranges": {"rate": 3}},
            "hyperparameter_ranges.rate: is not a range with a type; got 3",
        ),
        ({"hyperparameter_ranges": {"color": []}}, "hyperparameter_ranges.color.values: is empty"),
        ({"hyperparameter_ranges": {"color": ["a", "a"]}}, "has a value more than once"),
        (
            {"hyperparameter_ranges": {"color": [["a"]]}},
            "has a value that is not text, a number or a boolean",
        ),
        ({"hyperparameter_ranges": {"color": ["a" * 300]}}, "too long as JSON; got 302 characters"),
        (
            {
                "hyperparameter_ranges": {
                    "n": {
                        "type": "integer",
                        "min_value": 0,
                        "max_value": 1,
                        "scaling_type": "ReverseLogarithmic",
                    }
                }
            },
            "hyperparameter_ranges.n.scaling_type: has a value that integer ranges do not support",
        ),
        (
            {"hyperparameter_ranges": {"epochs": ["a", "b"]}, "max_jobs": 2},
            "is also a static hyperparameter; got training.hyperparameters.epochs = 3",
        ),
        (
            {"hyperparameter_ranges": {"sagemaker_program": ["a", "b"]}, "max_jobs": 2},
            "starts with a prefix that SageMaker reserves; allowed: names that do not start with sagemaker_ or",
        ),
        (
            {"hyperparameter_ranges": {f"p{n}": RATE for n in range(31)}},
            "hyperparameter_ranges: are too many; got 31; allowed: at most 30",
        ),
        (
            {"training": {"hyperparameters": {f"p{n}": n for n in range(92)}}},
            "training.hyperparameters: are too many; got 92; allowed: at most",
        ),
        ({"max_jobs": None}, "max_jobs: is required unless max_runtime_s or completion_criteria"),
        ({"max_jobs": 751}, "max_jobs: is out of range; got 751; allowed: 1 to 750"),
        (
            {"max_parallel_jobs": 5},
            "max_parallel_jobs: is more than max_jobs; got 5; allowed: 1 to 4",
        ),
        (
            {"hyperparameter_ranges": {"color": ["red", "green"]}},
            "max_jobs: is more than the number of combinations of the ranges; got 4; allowed: at most 2",
        ),
        ({"max_runtime_s": 60}, "max_runtime_s: is out of range; got 60; allowed: 120 to 15768000"),
        ({"budget_usd": 0}, "budget_usd: is too small"),
        ({"random_seed": -1}, "random_seed: is out of range"),
        ({"strategy": "Grid"}, "hyperparameter_ranges.rate: is not categorical"),
        (
            {"strategy": "Grid", "hyperparameter_ranges": {"color": ["red", "green"]}},
            "max_jobs: differs from the number of combinations; Grid tries all of them; got 4; allowed: 2",
        ),
        (
            {"strategy": "Grid", "hyperparameter_ranges": {f"p{n}": list(range(30)) for n in "ab"}},
            "(combinations): are too many; got 900; allowed: at most 750",
        ),
        ({"hyperband": {"max_resource": 9}}, "hyperband: is allowed for strategy Hyperband only"),
        (
            {"strategy": "Hyperband", "training": {"hyperparameters": {}}},
            "hyperband: is required, because no static hyperparameter sets the length of a trial",
        ),
        (
            {"strategy": "Hyperband", "hyperband": {"min_resource": 9, "max_resource": 3}},
            "hyperband.min_resource: is out of range; got 9; allowed: 1 to max_resource (3)",
        ),
        (
            {"strategy": "Hyperband", "early_stopping_type": "Auto"},
            "early_stopping_type: cannot be combined with Hyperband",
        ),
        (
            {"completion_criteria": {"max_number_of_training_jobs_not_improving": 2}},
            "max_number_of_training_jobs_not_improving: is too small; got 2; allowed: at least 3",
        ),
        ({"completion_criteria": {}}, "completion_criteria: is empty"),
        ({"warm_start": {"parents": []}}, "warm_start.parents: must list different tuning jobs"),
        (
            {"warm_start": {"parents": ["a", "a"]}},
            "warm_start.parents: must list different tuning jobs",
        ),
        (
            {"warm_start": {"parents": ["a" * 33]}},
            "warm_start.parents[0]: is not a tuning job name",
        ),
        (
            {"training": {"forward_sigterm": True}},
            "it needs container_entry_point, so a stopped trial's ranks receive no SIGTERM); remove forward_sigterm",
        ),
        (
            {"training": {"rules": [{"RuleConfigurationName": "x"}]}},
            "training.rules: is not supported in a tuning job",
        ),
        ({"training": {"budget_usd": 3}}, "training.budget_usd: is not supported in a tuning job"),
        (
            {
                "training": {
                    "training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p"
                }
            },
            "training.training_plan: is not supported in a tuning job (SageMaker runs no searches",
        ),
        (
            {"training": {"environment": {f"V{n}": "1" for n in range(49)}}},
            "training.environment: has too many variables for a tuning job; got 49",
        ),
        (
            {"training": {"instance_count": 0}},
            "training.instance_count: is too small; got 0; allowed: at least 1",
        ),
    ],
)
def test_fault_says_what_where_got_and_allowed(changes: dict[str, Any], says: str) -> None:
    assert says in refusal(**changes)


def test_everything_wrong_is_said_at_once() -> None:
    told = refusal(max_jobs=0, budget_usd=-1, random_seed=-1, objective_metric_name="none")

    assert "4 problem(s)" in told
