"""A comparison as it might have ended, for the tests of what follows from it."""

from __future__ import annotations

import json
from typing import Any

from trainyard.runs.comparison.measures import Measures
from trainyard.runs.comparison.record import CellRecord, ComparisonRecord


def cell(strategy: str, ranks: int, speed: float | None, **values: Any) -> CellRecord:
    """Return a cell on `ranks` instances at 0.36 USD an hour with that many samples/s; None failed."""
    measures = values.pop("measures", {})
    told = Measures(
        samples_per_second=speed,
        slowest=None if speed is None else 0.9 * speed,
        fastest=None if speed is None else 1.1 * speed,
        unit="tokens",
        units_per_second=None if speed is None else 64 * speed,
        step_seconds=None if speed is None else 16 / speed,
        steps_measured=36,
        **{
            "samples_per_epoch": 3600,
            "losses": ((1, 5.5), (20, 4.0), (40, 2.0)),
            "validation_loss": 2.5,
            "global_batch_size": 16,
            "num_parameters": 819_328,
            "peak_memory_bytes": tuple((400 + rank) * 2**20 for rank in range(ranks)),
            "memory_kind": "resident set",
            "state_bytes": tuple(12 * 2**20 for _ in range(ranks)),
            "communication_share": 0.1 if ranks > 1 else 0.0,
            **measures,
        },
    )
    return CellRecord(
        **{
            "name": f"{strategy} x {ranks}",
            "strategy": strategy,
            "ranks": ranks,
            "instance_count": ranks,
            "instance_type": "ml.m5.large",
            "entry_point": "train_ddp.py",
            "hyperparameters": {},
            "distribution": {"torch_distributed": {"enabled": True}},
            "job_name": f"d-r-cells-{ranks}",
            "status": "Failed" if speed is None else "Completed",
            "failure": "the script raised: ValueError: <no>" if speed is None else None,
            "attempts": 1,
            "cost_usd": 0.01,
            "price_usd_per_hour": 0.36,
            "measures": told,
            **values,
        }
    )


def comparison(*cells: CellRecord, **values: Any) -> ComparisonRecord:
    """Return the comparison of these cells."""
    return ComparisonRecord(
        **{
            "dag_id": "compare_strategies",
            "run_id": "manual__1",
            "started_at": 1_795_000_000.0,
            "ended_at": 1_795_000_200.0,
            "tasks": [{"task_id": "report", "state": "running", "start": 1.0, "end": 3.0}],
            "cells": cells,
            "conf": {"model": "gpt", "max_steps": 40, "strategies": [], "ranks": [1, 2]},
            "plan": {"ceiling_usd": 0.2},
            **values,
        }
    )


def metric_lines(rates: dict[int, float], *, max_steps: int = 40, batch: int = 16) -> list[str]:
    """Return the lines of metrics.jsonl of a training with these tokens/s at its logged steps."""
    start = {"event": "start", "step": 0, "global_batch_size": batch, "num_samples": 3600}
    steps = [
        {"event": "step", "step": step, "loss": 5.0 - step / 20, "tokens_per_second": rate}
        for step, rate in rates.items()
    ]
    return [json.dumps(each) for each in ({**start, "max_steps": max_steps}, *steps)]
