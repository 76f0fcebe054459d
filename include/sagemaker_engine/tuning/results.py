"""Results of trials in the service's structures: summaries, counters and the best trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import TERMINAL_STATUSES
from sagemaker_engine.tuning.observations import Observation, TrialPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sagemaker_engine.state.jobs import JobRow
    from sagemaker_engine.tuning.plan import Definition, TuningPlan
    from sagemaker_engine.tuning.tables import TrialRow

Summary = dict[str, Any]
_TIMES = ("TrainingStartTime", "TrainingEndTime")
CURVE = "Curve"
"""Member of a stored result with the trial's curve. It is not part of any API response."""


def result_of(job: JobRow, definition: Definition, curve: tuple[float, ...]) -> dict[str, Any]:
    """Return the current result of a trial, from its training job."""
    result: dict[str, Any] = {
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": job.status,
        "CreationTime": job.created_at,
        CURVE: list(curve),
    }
    for key in (*_TIMES, "FailureReason"):
        if key in job.state:
            result[key] = job.state[key]
    if job.status not in TERMINAL_STATUSES:
        return {**result, "ObjectiveStatus": TrialPhase.PENDING.value}
    final = {each["MetricName"]: each["Value"] for each in job.state.get("FinalMetricDataList", [])}
    if job.status == "Failed" or definition.metric not in final:
        return {**result, "ObjectiveStatus": TrialPhase.FAILED.value}
    result["FinalHyperParameterTuningJobObjectiveMetric"] = {
        "Type": "Maximize" if definition.maximize else "Minimize",
        "MetricName": definition.metric,
        "Value": final[definition.metric],
    }
    return {**result, "ObjectiveStatus": TrialPhase.SUCCEEDED.value}


def failed_result(trial: TrialRow, *, arn: str, reason: str, at: float) -> dict[str, Any]:
    """Return the result of a trial whose training job could not be created, or was deleted."""
    return {
        "TrainingJobArn": arn,
        "TrainingJobStatus": "Failed",
        "CreationTime": trial.decided_at,
        "TrainingEndTime": at,
        "FailureReason": reason[:1024],
        "ObjectiveStatus": TrialPhase.FAILED.value,
        CURVE: [],
    }


def observe(trial: TrialRow) -> Observation:
    """Return the observation of a stored trial."""
    if trial.result is None:
        return Observation(point=trial.point, phase=TrialPhase.PENDING)
    return Observation(
        point=trial.point,
        phase=TrialPhase(trial.result["ObjectiveStatus"]),
        objective=objective_of(trial.result),
        curve=tuple(trial.result[CURVE]),
        stopped=trial.stop_reason is not None,
    )


def objective_of(result: dict[str, Any]) -> float | None:
    """Return the final objective of a result; None if it has none."""
    value = result.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value")
    return None if value is None else float(value)


def summary(trial: TrialRow, result: dict[str, Any], plan: TuningPlan) -> Summary:
    """Return a HyperParameterTrainingJobSummary."""
    return {
        **result,
        "TrainingJobDefinitionName": plan.definitions[trial.definition].name,
        "TrainingJobName": trial.job_name,
        "TunedHyperParameters": trial.point,
    }


def best_of(summaries: Iterable[Summary], *, maximize: bool) -> Summary | None:
    """Return the summary with the best objective (the first on a tie), or None if no summary has one."""
    known = [each for each in summaries if objective_of(each) is not None]
    sign = -1 if maximize else 1
    return min(known, key=lambda each: sign * (objective_of(each) or 0.0), default=None)


def status_counters(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return TrainingJobStatusCounters. Failures that the service caused count as retryable."""
    counters = dict.fromkeys(
        ("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0
    )
    for each in results:
        match each["TrainingJobStatus"]:
            case "Failed":
                own = each.get("FailureReason", "").startswith(
                    ("InternalServerError", "CapacityError")
                )
                counters["RetryableError" if own else "NonRetryableError"] += 1
            case "Completed" | "Stopped" as status:
                counters[status] += 1
            case _:
                counters["InProgress"] += 1
    return counters


def objective_counters(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return ObjectiveStatusCounters."""
    statuses = [each["ObjectiveStatus"] for each in results]
    return {phase.value: statuses.count(phase.value) for phase in TrialPhase}
