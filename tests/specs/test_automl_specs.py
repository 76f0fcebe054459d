"""The AutoML specs: what they refuse, all at once, and what they read."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.specs.automl_conf import AutoMLConf
from trainyard.specs.automl_job import AutoMLJobSpec, AutoMLMode, ProblemType

PLACES = {"role": "r", "train": "s3://b/t/", "target": "y", "output_path": "s3://b/o"}


def faults(read: Any, **members: Any) -> str:
    with pytest.raises(SpecError) as raised:
        read(members)
    return str(raised.value)


def job_faults(**members: Any) -> str:
    return faults(AutoMLJobSpec.from_mapping, **{**PLACES, **members})


def test_mapping_is_read_into_typed_values() -> None:
    spec = AutoMLJobSpec.from_mapping(
        {
            **PLACES,
            "mode": "ENSEMBLING",
            "problem_type": "Regression",
            "objective": "RMSE",
            "algorithms": ["xgboost"],
            "max_candidates": "4",
        }
    )
    assert (spec.mode, spec.problem_type) == (AutoMLMode.ENSEMBLING, ProblemType.REGRESSION)
    assert (spec.algorithms, spec.max_candidates) == (("xgboost",), 4)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        pytest.param({"objective": "F1"}, "problem_type: is required with", id="objective alone"),
        pytest.param(
            {"problem_type": "Regression"}, "objective: is required with", id="problem alone"
        ),
        pytest.param(
            {"problem_type": "Regression", "objective": "F1"},
            "is not a metric of Regression",
            id="metric of another problem",
        ),
        pytest.param({"algorithms": ["xgboost"]}, "cannot be chosen", id="algorithms in AUTO"),
        pytest.param({"sample_weight": "w"}, "is supported in one mode only", id="weights in AUTO"),
        pytest.param(
            {"validation": "s3://b/v/", "validation_fraction": 0.2},
            "cannot be combined with a validation channel",
            id="fraction beside rows",
        ),
        pytest.param(
            {"validation_fraction": 1.0}, "is not a share of the rows", id="fraction too large"
        ),
        pytest.param({"max_candidates": 751}, "at most 750", id="too many candidates"),
        pytest.param({"budget_usd": 0}, "budget_usd: must be above 0", id="no budget"),
        pytest.param(
            {"max_runtime_s": 60, "max_runtime_per_candidate_s": 61},
            "longer than the whole job",
            id="candidate longer than the job",
        ),
        pytest.param({"target": ""}, "must name a column", id="no target"),
        pytest.param({"train": "/tmp/t"}, "train: is not an S3 URI", id="local path"),  # noqa: S108
        pytest.param({"max_candidate": 3}, "did you mean 'max_candidates'", id="unknown key"),
    ],
)
def test_wrong_job_is_refused(members: dict[str, Any], message: str) -> None:
    assert message in job_faults(**members)


def test_all_faults_are_told_at_once() -> None:
    told = job_faults(objective="F1", budget_usd=-1, train="t.csv")
    assert told.count("\n") >= 3


@pytest.mark.parametrize(
    ("members", "message"),
    [
        pytest.param({"dataset": "own"}, "source: is required", id="own without source"),
        pytest.param(
            {"dataset": "own", "source": "s3://b/t"}, "target_column: is required", id="no target"
        ),
        pytest.param(
            {"source": "s3://b/t"}, 'set dataset to "own"', id="source of a bundled table"
        ),
        pytest.param(
            {"dataset": "digits", "target_column": "alcohol"},
            "target_column: applies to dataset \"own\" only; got 'alcohol' with dataset 'digits'",
            id="target of a bundled table",
        ),
        pytest.param({"dataset": "titanic"}, "is not a known dataset", id="unknown table"),
        pytest.param(
            {"test_fraction": 1.0},
            "must leave rows for training and for the test",
            id="all rows to test",
        ),
        pytest.param(
            {"test_fraction": 0.5, "validation_fraction": 0.5}, "no rows to train on", id="no rows"
        ),
    ],
)
def test_wrong_conf_is_refused(members: dict[str, Any], message: str) -> None:
    assert message in faults(AutoMLConf.from_mapping, **members)


def test_own_table_names_its_target() -> None:
    conf = AutoMLConf.from_mapping(
        {"dataset": "own", "source": "s3://b/t", "target_column": "price"}
    )
    assert conf.target == "price"
    assert AutoMLConf().target == "target"
    assert AutoMLConf(target_column="target").target == "target"
