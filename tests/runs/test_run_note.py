"""A run's note: one line on how it ended."""

from __future__ import annotations

import pytest

from trainyard.runs.record import (
    STOPPED_BY_CAP,
    STOPPED_BY_RULE,
    STOPPED_IDLE,
    MoneyStop,
    RunRecord,
    TaskRecord,
)
from trainyard.runs.run_note import run_note

COST = {"total_usd": 0.125, "is_complete": True}
ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/forecasts/7"
VERDICT = {"rule": "NonFinite", "step": 4, "evidence": "loss is nan"}
FAILURE = {"task_id": "train", "what": "the script failed"}


def record(**members: object) -> RunRecord:
    return RunRecord(run_id="run", dag_id="train_end_to_end", **{"cost": COST, **members})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ended", "note"),
    [
        (
            record(
                status="succeeded",
                evaluation={"metrics": {"test_loss": 1.23456}},
                model_package_arn=ARN,
            ),
            "Succeeded; test loss 1.235; model forecasts version 7; cost $0.125",
        ),
        (
            record(status=STOPPED_BY_RULE, verdict=VERDICT),
            "Stopped by rule NonFinite at step 4, no model: loss is nan; cost $0.125",
        ),
        (
            record(
                status=STOPPED_BY_CAP,
                cap_stop=MoneyStop(step=40, last_checkpoint="s3://b/c/step-00000040"),
                cost={**COST, "max_cost_usd": 0.13},
                model_package_arn=ARN,
            ),
            "Stopped by its cost cap at step 40; model forecasts version 7; cost $0.125 of $0.13 cap",
        ),
        (
            record(
                status=STOPPED_IDLE,
                idle_stop=MoneyStop(step=40),
                model_package_arn=ARN,
            ),
            "Stopped: idle accelerators at step 40; model forecasts version 7; cost $0.125",
        ),
        (
            record(status="succeeded", tasks=(TaskRecord(task_id="watch_rules", state="failed"),)),
            "Succeeded; rules not watched to the end; cost $0.125",
        ),
        (
            record(status="failed", failure=FAILURE),
            "Failed in train: the script failed; cost $0.125",
        ),
        (record(status="failed"), "Failed; cost $0.125"),
        (
            record(status="succeeded", cost={"total_usd": 2.0, "is_complete": False}),
            "Succeeded; cost at least $2.00",
        ),
        (record(status="running", cost={}), "Running"),
    ],
    ids=[
        "succeeded",
        "stopped",
        "capped",
        "idle",
        "not watched",
        "failed",
        "failed-unknown",
        "cost-incomplete",
        "running",
    ],
)
def test_a_note_has_the_verdict_the_reason_and_the_cost(ended: RunRecord, note: str) -> None:
    assert run_note(ended) == note


def test_a_long_reason_is_shortened() -> None:
    failure = {"task_id": "train", "what": "x" * 5000}

    assert len(run_note(record(status="failed", failure=failure))) <= 500
