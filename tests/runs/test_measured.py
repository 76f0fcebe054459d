"""What later estimates learn from a run that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.sample_run import (
    EMPTY_LEDGER,
    processing_snapshot,
    sample_record,
    sample_tasks,
    training_snapshot,
)
from trainyard.runs.builder import job_record
from trainyard.runs.measured import run_measurement
from trainyard.runs.report.views import cost_rows
from trainyard.specs.run_conf import RunConf
from trainyard.units import format_usd

if TYPE_CHECKING:
    from trainyard.runs.record import RunRecord

USD = {"low": 0.004, "expected": 0.006, "high": 0.02}


def plain_record(**changes: Any) -> RunRecord:
    """Return the record of a run whose training was never interrupted."""
    lines = [
        f'{{"event": "step", "time": {1000.0 + step / 10}, "step": {step}, "loss": 1.0}}'
        for step in range(1, 401)
    ]
    train = training_snapshot(interruptions=0, training_seconds=60, billable_seconds=60)
    jobs = [job_record("train", train), job_record("evaluate", processing_snapshot())]
    return sample_record(**{"metric_lines": lines, "jobs": jobs, **changes})


def conf_of(record: RunRecord) -> RunConf:
    return RunConf.from_mapping(dict(record.conf))


def test_jobs_of_a_run_are_measured() -> None:
    record = plain_record()

    measured = run_measurement(record, conf_of(record))

    assert measured is not None
    train, evaluate = measured.jobs
    assert train.loop_s == pytest.approx(39.9)
    assert train.on_instances_s == 60
    assert (train.work.instance_type, train.work.num_ranks) == ("ml.m5.large", 2)
    assert evaluate.loop_s is None
    assert measured.test_units == 611_328


def test_interrupted_training_teaches_nothing_about_its_speed() -> None:
    record = sample_record()

    measured = run_measurement(record, conf_of(record))

    assert measured is not None
    assert [each.work.task_id for each in measured.jobs] == ["evaluate"]


def test_run_that_did_not_succeed_teaches_nothing() -> None:
    record = plain_record(failure={"task_id": "train", "what": "x"})

    assert run_measurement(record, conf_of(record)) is None


def test_wait_for_a_person_is_not_learned() -> None:
    record = plain_record()
    *others, register = sample_tasks()
    asked_at = record.ended_at - 8
    asking = {**register, "asked_at": asked_at, "answered_at": record.ended_at}
    asked = plain_record(tasks=[*others, asking])

    times = [run_measurement(each, conf_of(each)) for each in (record, asked)]

    assert times[0] is not None
    assert times[1] is not None
    assert times[1].between_jobs_s == pytest.approx(times[0].between_jobs_s - 8)


def test_training_that_ended_early_has_no_speed() -> None:
    record = plain_record()
    early = plain_record(conf={**record.conf, "max_steps": 800})

    measured = run_measurement(early, conf_of(early))

    assert measured is not None
    assert measured.jobs[0].loop_s is None


def test_report_has_the_estimate_beside_the_actual_cost() -> None:
    record = plain_record(plan={"estimate": {"usd": USD}}, ledger=EMPTY_LEDGER)

    total = record.cost["total_usd"]
    assert record.cost["estimate_error"] == pytest.approx(total / 0.006 - 1)
    shown = f"$0.006 ($0.004 to $0.02), actual {format_usd(total)}, -16 %"
    assert dict(cost_rows(record))["estimate"] == shown


def test_report_of_a_run_without_an_estimate_has_no_such_row() -> None:
    assert "estimate" not in dict(cost_rows(plain_record()))
