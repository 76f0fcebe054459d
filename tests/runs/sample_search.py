"""A search as the tuning task hands it on: twelve trials, one failed, one stopped early."""

from __future__ import annotations

import math
from typing import Any

from trainyard.tuning.result import BestTrial, EndedBy, Objective, TuningResult
from trainyard.tuning.trials import Trial

BEGIN = 1_763_740_800.0
JOB = "train-end-to-end-tune-5a41c2"
URI = "s3://trainyard/trainyard/runs/train_end_to_end/x/tuning/trials.parquet"
# learning_rate, weight_decay, validation loss
_TRIED = (
    (0.0006, 0.020, 2.91),
    (0.0150, 0.210, 2.62),
    (0.0031, 0.012, 2.47),
    (0.0011, 0.350, 2.74),
    (0.0062, 0.090, 2.49),
    (0.0019, 0.033, None),
    (0.0038, 0.160, 2.455),
    (0.0021, 0.046, 2.412),
    (0.0088, 0.015, 2.53),
    (0.0008, 0.120, 2.95),
    (0.0027, 0.064, 2.431),
    (0.0044, 0.480, 2.468),
)
_BEST = 7
_FAILED, _STOPPED = 5, 9


def sample_trials() -> list[Trial]:
    """Return the trials in the order they were started."""
    return [_trial(index, *tried) for index, tried in enumerate(_TRIED)]


def sample_result(**changes: Any) -> TuningResult:
    """Return what the tuning task returns for them."""
    trials = sample_trials()
    rate, decay, loss = _TRIED[_BEST]
    assert loss is not None
    tuned = {"learning_rate": str(rate), "weight_decay": str(decay)}
    members: dict[str, Any] = {
        "tuning_job_name": JOB,
        "tuning_job_arn": f"arn:aws:sagemaker:us-east-1:000000000000:hyper-parameter-tuning-job/{JOB}",
        "status": "Completed",
        "ended_by": EndedBy.SERVICE,
        "is_complete": True,
        "strategy": "Bayesian",
        "objective": Objective(metric_name="validation:loss", type="Minimize"),
        "best": BestTrial(
            training_job_name=trials[_BEST].training_job_name,
            value=loss,
            tuned_hyperparameters=tuned,
            hyperparameters={**tuned, "max_steps": "100"},
            model_artifacts="s3://trainyard/model.tar.gz",
        ),
        "num_trials": {"Completed": 10, "Failed": 1, "Stopped": 1},
        "billable_seconds": math.fsum(each.billable_seconds or 0 for each in trials),
        "cost_usd": 0.0442,
        "budget_usd": 1.0,
        "estimated_cost_usd": 2.76,
        "trials_uri": URI,
        "importance": {"learning_rate": 0.86, "weight_decay": 0.14},
    }
    return TuningResult(**{**members, **changes})


def _trial(index: int, rate: float, decay: float, loss: float | None) -> Trial:
    start = BEGIN + 30 * (index // 2)
    return Trial(
        training_job_name=f"{JOB}-{index + 1:03d}-{7919 * (index + 3):08x}",
        status="Failed" if index == _FAILED else "Stopped" if index == _STOPPED else "Completed",
        objective=loss,
        tuned_hyperparameters={"learning_rate": str(rate), "weight_decay": str(decay)},
        started_at=start,
        ended_at=start + 26,
        billable_seconds=52.0,
        cost_usd=0.0017,
        failure_reason="AlgorithmError: the loss is not finite" if index == _FAILED else None,
        is_early_stopped=index == _STOPPED,
    )
