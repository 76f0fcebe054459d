"""A record is built from whatever a run left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.runs.sample_run import (
    EMPTY_LEDGER,
    built_record,
    sample_record,
    sample_tasks,
    training_snapshot,
)
from trainyard.runs.builder import job_record, read_events, thinned
from trainyard.runs.report.views import cost_rows


@pytest.mark.parametrize(
    ("states", "failure", "status"),
    [
        ({}, None, "succeeded"),
        ({"register": "skipped"}, None, "succeeded"),
        ({"train": "failed"}, None, "failed"),
        ({"train": "upstream_failed"}, None, "failed"),
        ({"train": "deferred"}, None, "running"),
        ({}, {"task_id": "train", "what": "x"}, "failed"),
        ({"watch_rules": "failed"}, None, "succeeded"),
        ({"watch_rules": "failed", "train": "deferred"}, None, "running"),
        ({"watch_rules": "failed", "train": "failed"}, None, "failed"),
    ],
    ids=[
        "all well",
        "skipped",
        "failed",
        "upstream",
        "deferred",
        "known failure",
        "not watched",
        "not watched and deferred",
        "not watched and failed",
    ],
)
def test_the_status_follows_from_the_tasks(
    states: dict[str, str], failure: dict[str, Any] | None, status: str
) -> None:
    assert sample_record(tasks=sample_tasks(**states), failure=failure).status == status


def test_a_job_has_its_cost_and_its_spot_savings() -> None:
    job = job_record("train", training_snapshot())

    assert job.cost["cost_usd"] == pytest.approx(2 * 89 * 0.115 / 3600)
    assert job.cost["saved_usd"] == pytest.approx(2 * (218 - 89) * 0.115 / 3600)


def test_a_job_in_a_training_plan_is_recorded_as_paid_up_front() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-november"
    job = job_record("train", training_snapshot(training_plan=plan))

    assert job.training_plan == plan
    assert job.cost["cost_usd"] == 0
    assert job.cost["note"] == "in training plan p5-november, whose fee is paid up front"


def test_the_cost_of_the_run_is_the_sum_of_its_jobs() -> None:
    record = sample_record(ledger=EMPTY_LEDGER)

    assert record.cost["total_usd"] == pytest.approx((2 * 89 + 38) * 0.115 / 3600)
    assert record.cost["is_complete"]
    assert record.cost["tokens_trained"] == 400 * 16 * 256
    assert record.cost["usd_per_million_tokens"] == pytest.approx(
        2 * 89 * 0.115 / 3600 / (400 * 16 * 256) * 1e6
    )


def test_an_unknown_price_makes_the_sum_unknown_not_zero() -> None:
    record = sample_record(jobs=[job_record("train", training_snapshot(instance_type="ml.x"))])

    assert record.cost["total_usd"] is None
    assert not record.cost["is_complete"]
    assert record.cost["usd_per_million_tokens"] is None


def test_the_cost_without_a_readable_ledger_is_not_complete() -> None:
    """Only the ledger has the jobs of tasks that left no result."""
    record = sample_record(ledger=None)

    assert record.cost["total_usd"] == pytest.approx((2 * 89 + 38) * 0.115 / 3600)
    assert not record.cost["is_complete"]
    assert "some costs are unknown" in dict(cost_rows(record))["total"]


def test_a_run_without_jobs_cost_nothing() -> None:
    assert built_record(dag_id="d", run_id="r", ledger=EMPTY_LEDGER).cost["total_usd"] == 0


def test_a_failed_attempt_costs_too() -> None:
    first = job_record("train", training_snapshot(status="Failed"), attempts=1)
    second = job_record("train", training_snapshot(), attempts=2)

    record = sample_record(jobs=[first, second])

    assert record.cost["total_usd"] == pytest.approx(2 * 2 * 89 * 0.115 / 3600)
    assert record.job_of("train") == second


def test_shards_come_in_the_order_train_validation_test() -> None:
    record = sample_record()

    assert record.dataset is not None
    assert list(dict.fromkeys(s.split for s in record.dataset.shards)) == [
        "train",
        "validation",
        "test",
    ]


def test_lines_that_a_killed_process_cut_off_are_left_out() -> None:
    lines = ['{"event": "step", "step": 1, "loss": NaN}', '{"event": "st', "[1]", ""]

    assert read_events(lines) == [{"event": "step", "step": 1, "loss": None}]


@given(count=st.integers(0, 400), most=st.integers(1, 50))
def test_thinning_keeps_the_ends_the_order_and_everything_but_steps(count: int, most: int) -> None:
    events: list[dict[str, Any]] = [{"event": "step", "step": i} for i in range(count)]
    events.insert(count // 2, {"event": "eval", "step": count // 2})

    kept = thinned(events, most)

    steps = [event["step"] for event in kept if event["event"] == "step"]
    assert len(steps) <= most + 1
    assert steps == sorted(steps)
    assert any(event["event"] == "eval" for event in kept)
    if count:
        assert (steps[0], steps[-1]) == (0, count - 1)


def test_a_record_is_json_without_nan() -> None:
    snapshot = training_snapshot(final_metrics={"train:loss": float("nan")})

    record = sample_record(jobs=[job_record("train", snapshot)])

    assert json.loads(record.to_json())["jobs"][0]["final_metrics"] == {"train:loss": None}


def test_an_evaluation_is_json_without_nan_at_any_depth() -> None:
    nan, infinity = float("nan"), float("inf")
    evaluation = {"metrics": {"loss": nan, "accuracy": 0.5}, "by_class": [{"f1": infinity}, 1.0]}

    record = sample_record(evaluation=evaluation)

    assert json.loads(record.to_json())["evaluation"] == {
        "metrics": {"loss": None, "accuracy": 0.5},
        "by_class": [{"f1": None}, 1.0],
    }
