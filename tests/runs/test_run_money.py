"""The money of a run: what it saved, and what an epoch and a point of loss cost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.runs.sample_run import EMPTY_LEDGER, processing_snapshot, sample_record
from trainyard.runs.builder import job_record
from trainyard.runs.ledger import Ledger, LedgerEntry, PaidKind
from trainyard.runs.report.tiles import tiles
from trainyard.runs.report.views import cost_rows

TRAINING_USD = 2 * 89 * 0.115 / 3600
SAVED_USD = 2 * (218 - 89) * 0.115 / 3600


def lines(*losses: float | None, **start: Any) -> list[str]:
    """Return the lines of a training of 400 steps with these validation losses."""
    events: list[dict[str, Any]] = [{"event": "start", "time": 1.0, "step": 0, **start}]
    events += [
        {"event": "eval", "time": 2.0, "step": 400, "validation_loss": each} for each in losses
    ]
    events += [{"event": "step", "time": 3.0, "step": 400, "loss": 1.0}]
    return [json.dumps(each) for each in events]


def test_savings_are_measured_against_on_demand() -> None:
    record = sample_record(ledger=EMPTY_LEDGER)
    cost = record.cost

    assert cost["saved_usd"] == pytest.approx(SAVED_USD)
    assert cost["on_demand_usd"] == pytest.approx(cost["total_usd"] + SAVED_USD)
    assert cost["saved_fraction"] == pytest.approx(SAVED_USD / cost["on_demand_usd"])
    assert dict(cost_rows(record))["saved by spot"].endswith("on demand, 54 %")


def test_epoch_costs_its_share_of_the_training() -> None:
    record = sample_record(metric_lines=lines(num_samples=3200, global_batch_size=16))

    assert record.cost["usd_per_epoch"] == pytest.approx(TRAINING_USD / 2)
    assert "per epoch" in dict(cost_rows(record))


def test_point_of_loss_costs_the_training_for_the_fall_to_the_lowest() -> None:
    record = sample_record(metric_lines=lines(3.0, 1.0, 1.5))

    assert record.cost["usd_per_loss_point"] == pytest.approx(TRAINING_USD / 2)


@pytest.mark.parametrize("losses", [(), (3.0,), (1.0, 2.0), (None, None)], ids=str)
def test_loss_that_did_not_fall_has_no_price(losses: tuple[float | None, ...]) -> None:
    record = sample_record(metric_lines=lines(*losses))

    assert record.cost["usd_per_loss_point"] is None
    assert record.cost["usd_per_epoch"] is None


TRAINED = LedgerEntry(
    kind=PaidKind.TRAINING, name="lost", task_id="train", intended_at=1.0, cost_usd=3.0
)
SETTLED = replace(TRAINED, status="Stopped", settled_at=2.0, billable_seconds=60)


def ledger(*entries: LedgerEntry) -> dict[str, Any]:
    return Ledger.of(entries).to_dict()


def test_job_that_only_the_ledger_has_is_part_of_the_total() -> None:
    evaluation = job_record("evaluate", processing_snapshot())
    usd, seconds = evaluation.cost["cost_usd"], evaluation.billable_seconds
    own = replace(SETTLED, name=evaluation.name, cost_usd=usd, billable_seconds=seconds)

    cost = sample_record(jobs=[evaluation], ledger=ledger(SETTLED, own)).cost

    assert (cost["total_usd"], cost["is_complete"]) == (pytest.approx(3.0 + usd), True)


def test_training_that_only_the_ledger_has_has_its_cost_per_epoch() -> None:
    trained = lines(num_samples=3200, global_batch_size=16)

    record = sample_record(metric_lines=trained, ledger=ledger(SETTLED))

    assert record.cost["usd_per_epoch"] == pytest.approx((TRAINING_USD + 3.0) / 2)


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTLED, name="unpriced", cost_usd=None),
        replace(TRAINED, name="running", cost_usd=None),
    ],
    ids=lambda each: each.name,
)
def test_total_is_not_complete_with_an_entry_of_unknown_cost(other: LedgerEntry) -> None:
    cost = sample_record(jobs=[], ledger=ledger(SETTLED, other)).cost

    assert (cost["total_usd"], cost["is_complete"]) == (3.0, False)


def test_report_without_a_jobs_record_has_the_cost_in_the_ledger() -> None:
    record = sample_record(jobs=[], ledger=ledger(SETTLED))

    assert dict(cost_rows(record))["total"] == "$3.00"
    assert next(each.value for each in tiles(record) if each.name == "Cost") == "$3.00"


def test_report_of_a_run_that_created_no_job_has_no_costs() -> None:
    record = sample_record(jobs=[], ledger=ledger())

    assert not cost_rows(record)
    assert "Cost" not in {each.name for each in tiles(record)}
