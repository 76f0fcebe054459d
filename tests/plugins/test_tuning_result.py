"""What a search's end is made of: who ended it, which trial won, what mattered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainyard.errors import JobFailedError, SpecError
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.sagemaker_api.tuning_snapshot import SearchFacts
from trainyard.specs.tuning_job import TuningJobSpec
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trials import Trial
from trainyard_airflow.jobs.tuning import TuningJobType
from trainyard_airflow.jobs.tuning_result import (
    ended_by,
    tuning_result,
    usable_best,
)

SEARCH = JobSnapshot(
    kind="tuning",
    name="search",
    arn="arn",
    status="Stopped",
    created_at=0.0,
    ended_at=500.0,
    max_run_s=600,
)
FACTS = SearchFacts(
    strategy="Random",
    metric_name="loss",
    objective_type="Minimize",
    best_name="search-001-x",
    best_value=0.5,
    best_tuned={"rate": "0.1", "color": '"red"'},
    static={"epochs": "3", "api_key": '"key-very-secret"'},
    counters={},
    has_criteria=False,
)
TRIAL = Trial(
    training_job_name="search-002-x",
    status="Completed",
    objective=0.7,
    tuned_hyperparameters={"rate": "0.2", "color": "green"},
    billable_seconds=10.0,
    cost_usd=0.1,
)
SPEC: dict[str, Any] = {
    "training": {
        "role": "arn:aws:iam::123456789012:role/Training",
        "output_path": "s3://bucket/output",
        "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "instance_type": "ml.m5.large",
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    },
    "hyperparameter_ranges": {
        "rate": {
            "type": "continuous",
            "min_value": 1e-5,
            "max_value": 1,
            "scaling_type": "Logarithmic",
        },
        "color": ["red", "green", "3"],
    },
    "objective_metric_name": "loss",
    "objective_type": "Minimize",
    "max_jobs": 20,
}


def test_cap_on_instances_of_unknown_price_names_their_type() -> None:
    training = {**SPEC["training"], "instance_type": "ml.x9.large", "instance_count": 3}
    given = {**SPEC, "training": training, "max_cost_usd": 5, "max_parallel_jobs": 2}
    search = TuningJobType(None, TuningJobSpec.from_mapping(given))  # type: ignore[arg-type]  # no job is read

    with pytest.raises(
        SpecError, match=r"no price for 3 x ml\.x9\.large per trial with max_parallel_jobs 2"
    ):
        search.place([])


@pytest.mark.parametrize(
    ("changes", "cause", "expected"),
    [
        ({"status": "Completed"}, None, EndedBy.SERVICE),
        ({}, None, EndedBy.PERSON),
        ({}, StopCause.BUDGET, EndedBy.BUDGET),
        ({}, StopCause.TIME, EndedBy.TIME),
        ({"ended_at": 600.0}, None, EndedBy.TIME),
        ({"ended_at": 600.0, "max_run_s": None}, None, EndedBy.PERSON),
        ({"ended_at": 700.0}, StopCause.BUDGET, EndedBy.BUDGET),
        ({"status": "Failed", "ended_at": 700.0}, None, EndedBy.SERVICE),
    ],
)
def test_who_ended_a_search(changes: Any, cause: StopCause | None, expected: EndedBy) -> None:
    assert ended_by(replace(SEARCH, **changes), cause) is expected


def test_services_winner_is_the_best_without_secrets_and_quotes() -> None:
    best = usable_best(SEARCH, FACTS, [TRIAL])

    assert (best.training_job_name, best.value) == ("search-001-x", 0.5)
    assert best.tuned_hyperparameters == {"rate": "0.1", "color": "red"}
    assert best.hyperparameters == {"epochs": "3", "rate": "0.1", "color": "red"}


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_trials_tell_the_best_where_the_service_does_not(value: float | None) -> None:
    best = usable_best(SEARCH, replace(FACTS, best_value=value), [TRIAL])

    assert (best.training_job_name, best.value) == ("search-002-x", 0.7)
    assert best.tuned_hyperparameters == {"rate": "0.2", "color": "green"}


def test_search_without_any_objective_is_an_error_that_names_the_regex() -> None:
    silent = [replace(TRIAL, objective=None)]
    with pytest.raises(JobFailedError, match=r"no trial has a finite objective") as raised:
        usable_best(SEARCH, replace(FACTS, best_name=None, best_value=None), silent)

    assert "the regex of metric 'loss'" in str(raised.value)


def result_of(trials: list[Trial]) -> Any:
    return tuning_result(
        TuningJobSpec.from_mapping(SPEC),
        search=SEARCH,
        facts=FACTS,
        trials=trials,
        best=usable_best(SEARCH, FACTS, trials),
        ended_by=EndedBy.BUDGET,
        trials_uri="s3://bucket/trials.parquet",
    )


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    known = result_of([TRIAL, replace(TRIAL, status="Failed")])
    assert known.cost_usd == pytest.approx(0.2)
    assert known.billable_seconds == 20.0
    assert known.num_trials == {"Completed": 1, "Failed": 1, "Stopped": 0}

    assert result_of([TRIAL, replace(TRIAL, cost_usd=None)]).cost_usd is None


def test_what_mattered_is_worked_out_from_completed_trials() -> None:
    colors = ["red", "green", "3"]
    trials = [
        replace(
            TRIAL,
            objective=float(n),
            tuned_hyperparameters={"rate": str(10.0 ** (-n / 3)), "color": colors[n % 3]},
        )
        for n in range(12)
    ]
    stopped = replace(TRIAL, status="Stopped", objective=1e6)

    shares = result_of([*trials, stopped]).importance
    assert shares["rate"] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert result_of(trials[:3]).importance == {}
