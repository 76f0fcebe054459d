"""A spec with values that only a run knows is checked as far as the other values allow, and no further."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003  # check_spec evaluates the annotations
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.sagemaker_api.golden_specs import PROCESSING, TRAINING
from trainyard.errors import Finding, SpecError
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.reading import UNKNOWN, check_spec
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import TuningJobSpec

ROLE = "arn:aws:iam::123456789012:role/Training"
LOSS = {"Name": "loss", "Regex": "loss=(.*)"}
SEARCHES: dict[str, dict[str, Any]] = {
    "bayesian": {
        "training": {**TRAINING["torchrun"], "metric_definitions": [LOSS]},
        "hyperparameter_ranges": {"lr": {"type": "continuous", "min_value": 0, "max_value": 1}},
        "objective_metric_name": "loss",
        "objective_type": "Minimize",
        "max_jobs": 4,
        "max_parallel_jobs": 8,
    },
    "grid": {
        "training": TRAINING["spot"],
        "hyperparameter_ranges": {"width": [1, 2], "lr": [0.1, 0.2]},
        "strategy": "Grid",
        "max_jobs": 5,
        "early_stopping_type": "Auto",
    },
    "hyperband": {
        "training": {**TRAINING["torchrun"], "forward_sigterm": True, "rules": [{"A": "b"}]},
        "strategy": "Hyperband",
        "hyperband": {"min_resource": 3, "max_resource": 2},
        "warm_start": {"parents": []},
        "completion_criteria": {},
        "max_runtime_s": 1,
    },
}
AUTOML: dict[str, dict[str, Any]] = {
    "auto": {
        "role": ROLE,
        "train": "s3://bucket/a",
        "target": "y",
        "output_path": "s3://bucket/b",
        "algorithms": ["xgboost"],
        "sample_weight": "w",
    },
    "chosen": {
        "mode": "ENSEMBLING",
        "problem_type": "Regression",
        "objective": "F1",
        "validation": "s3://bucket/v",
        "validation_fraction": 0.2,
        "max_runtime_s": 10,
        "max_runtime_per_candidate_s": 20,
        "max_candidates": 0,
    },
}
ODD: dict[str, dict[str, Any]] = {
    "ladder": {"capacity_ladder": [{"instance_type": "ml.g5.xlarge"}] * 2, "max_wait": 60},
    "odd": {
        "code_location": "bucket/x",
        "subnets": ["subnet-1"],
        "keep_alive_period_in_seconds": 60,
        "max_cost_usd": 3,
        "arguments": ["--a"],
        "training_plan": "plan-1",
        "hyperparameters": {"sagemaker_x": 1},
        "distribution": {"mpi": {"enabled": True}},
    },
}


def findings(cls: type[Any], mapping: dict[str, Any]) -> set[Finding]:
    try:
        check_spec(cls, mapping, where="spec")
    except SpecError as error:
        return set(error.findings)
    return set()


def hidden(value: Any, choose: Any) -> Any:
    """Return the value with `UNKNOWN` in place of some of its parts."""
    if choose(st.integers(0, 3)) == 0:
        return UNKNOWN
    if isinstance(value, dict):
        return {key: hidden(each, choose) for key, each in value.items()}
    if isinstance(value, list):
        return [hidden(each, choose) for each in value]
    return value


@pytest.mark.parametrize(
    ("cls", "specs"),
    [
        (TrainingJobSpec, {**TRAINING, **ODD}),
        (ProcessingJobSpec, {**PROCESSING, "odd": {"max_cost_usd": -1, "code_location": "b"}}),
        (TuningJobSpec, SEARCHES),
        (AutoMLJobSpec, AUTOML),
    ],
    ids=["training", "processing", "tuning", "automl"],
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_spec_with_unknown_values_has_no_finding_that_the_known_spec_lacks(
    cls: type[Any], specs: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    fields = [(name, each) for spec in specs.values() for name, each in spec.items()]
    spec = dict(data.draw(st.sampled_from([*specs.values()])))
    spec |= dict(data.draw(st.lists(st.sampled_from(fields), max_size=8)))
    partly = {name: hidden(each, data.draw) for name, each in spec.items()}

    assert findings(cls, partly) <= findings(cls, spec)


def test_a_range_of_an_unknown_type_has_no_finding() -> None:
    ranges = {"lr": {"type": UNKNOWN, "min_value": 0, "max_value": 1}}

    assert findings(TuningJobSpec, {**SEARCHES["bayesian"], "hyperparameter_ranges": ranges}) == {
        Finding(
            where="spec.max_parallel_jobs", what="is more than max_jobs", got="8", allowed="1 to 4"
        )
    }


def test_rules_that_read_known_fields_only_are_checked() -> None:
    spec = {
        **TRAINING["torchrun"],
        "role": UNKNOWN,
        "max_run": UNKNOWN,
        "max_wait": 60,
        "checkpoint_s3_uri": "bucket/x",
        "inputs": {"train": {"s3_data": UNKNOWN, "shufle_seed": 1}},
    }

    assert {each.where for each in findings(TrainingJobSpec, spec)} == {
        "spec.max_wait",
        "spec.checkpoint_s3_uri",
        "spec.inputs.train.shufle_seed",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenSpec:
    name: int
    other: int

    def checks(self) -> Iterator[Iterator[Finding]]:
        yield (Finding(where=each, what="") for each in self.name.split())  # type: ignore[attr-defined]  # on purpose


def test_an_error_of_a_rule_itself_is_not_hidden() -> None:
    with pytest.raises(AttributeError, match="split"):
        check_spec(BrokenSpec, {"name": 1, "other": UNKNOWN})
