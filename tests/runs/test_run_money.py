"""The money of a run: what it saved, and what an epoch and a point of loss cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runs.sample_run import sample_record
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
    cost = sample_record().cost

    assert cost["saved_usd"] == pytest.approx(SAVED_USD)
    assert cost["on_demand_usd"] == pytest.approx(cost["total_usd"] + SAVED_USD)
    assert cost["saved_fraction"] == pytest.approx(SAVED_USD / cost["on_demand_usd"])
    assert dict(cost_rows(sample_record()))["saved by spot"].endswith("on demand, 54 %")


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
