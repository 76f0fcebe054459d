"""The result of a search is JSON-safe and comes back the same."""

from __future__ import annotations

import json

import pytest

from trainyard.errors import ContractError
from trainyard.tuning.result import BestTrial, EndedBy, Objective, TuningResult

RESULT = TuningResult(
    tuning_job_name="dag-tune-0123456789",
    tuning_job_arn="arn:aws:sagemaker:us-east-1:1:hyper-parameter-tuning-job/x",
    status="Stopped",
    ended_by=EndedBy.BUDGET,
    is_complete=False,
    strategy="Bayesian",
    objective=Objective(metric_name="validation:loss", type="Minimize"),
    best=BestTrial(
        training_job_name="dag-tune-0123456789-001-0badcafe",
        value=0.25,
        tuned_hyperparameters={"learning_rate": "0.001", "optimizer": "adam"},
        hyperparameters={"learning_rate": "0.001", "optimizer": "adam", "max_steps": "10"},
        model_artifacts="s3://bucket/model.tar.gz",
    ),
    num_trials={"Completed": 3, "Failed": 1, "Stopped": 2},
    billable_seconds=120.0,
    cost_usd=0.01,
    budget_usd=0.02,
    trials_uri="s3://bucket/run/tuning/trials.parquet",
    importance={"learning_rate": 0.9, "optimizer": 0.1},
)


def test_result_survives_json():
    data = json.loads(json.dumps(RESULT.to_dict()))

    assert TuningResult.from_dict(data) == RESULT
    assert data["ended_by"] == "budget"


def test_winning_values_are_typed_for_a_training_job():
    assert RESULT.best.tuned_values == {"learning_rate": 0.001, "optimizer": "adam"}


@pytest.mark.parametrize(
    "change", [{"ended_by": "luck"}, {"best": None}, {"surprise": 1}], ids=["end", "best", "key"]
)
def test_other_data_is_no_result(change):
    with pytest.raises(ContractError, match="the data is not the result of a search"):
        TuningResult.from_dict({**RESULT.to_dict(), **change})
