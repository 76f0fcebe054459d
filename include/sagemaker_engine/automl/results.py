"""Results of the steps of an AutoML job: outcome of each step's job, best candidate, and analysis of the data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl.algorithms import Tried
from sagemaker_engine.automl.plan import Analysis, Problem, read_plan
from sagemaker_engine.automl.step_jobs import VALIDATION
from sagemaker_engine.tuning.observations import Observation, TrialPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sagemaker_engine.automl.plan import AutoMLPlan
    from sagemaker_engine.automl.tables import AutoMLRow, AutoMLStep
    from sagemaker_engine.state.jobs import JobRow
    from sagemaker_engine.tuning.ranges import Point

MAX_REASON_CHARS = 1024


def result_of(job: JobRow) -> dict[str, Any]:
    """Return the current result of a step's job; members without a value are omitted.

    The members are Status, Arn, CreationTime, EndTime, FailureReason, ModelDataUrl, ExitMessage and
    Metrics (value by metric name).
    """
    state = job.state
    found = {
        "Status": job.status,
        "Arn": job.arn,
        "CreationTime": job.created_at,
        "EndTime": state.get("TrainingEndTime")
        or state.get("ProcessingEndTime")
        or (job.modified_at if job.is_terminal else None),
        "FailureReason": state.get("FailureReason"),
        "Metrics": {
            each["MetricName"]: each["Value"] for each in state.get("FinalMetricDataList", [])
        },
        "ModelDataUrl": state.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        "ExitMessage": state.get("ExitMessage"),
    }
    return {name: value for name, value in found.items() if value is not None}


def failed_result(step: AutoMLStep, *, arn: str, reason: str, at: float) -> dict[str, Any]:
    """Return the result (see `result_of`) of a step whose job was not created, or was deleted."""
    return {
        "Status": "Failed",
        "Arn": arn,
        "CreationTime": step.decided_at,
        "EndTime": at,
        "FailureReason": reason[:MAX_REASON_CHARS],
        "Metrics": {},
    }


def plan_of(row: AutoMLRow, steps: Sequence[AutoMLStep]) -> AutoMLPlan | None:
    """Return the plan of a job; None before its analysis, the first step, has completed."""
    if not steps or not steps[0].has_completed or steps[0].result is None:
        return None
    summary = json.loads(steps[0].result["ExitMessage"])
    analysis = Analysis(problem=Problem(summary["problem_type"]), num_bytes=summary["num_bytes"])
    return read_plan(row.request, analysis)


def analysis_failure(step: AutoMLStep) -> str:
    """Return the FailureReason of a job whose analysis failed: a ClientError if the user's data caused it."""
    reason = str((step.result or {}).get("FailureReason", "The analysis was stopped."))
    words, separator, status = reason.removeprefix("AlgorithmError: ").rpartition(", exit code: ")
    return f"ClientError: {words}" if separator and status == "2" else reason


def objective_of(step: AutoMLStep, plan: AutoMLPlan) -> float | None:
    """Return the value of the objective that the candidate of a step reached on the validation rows.

    Return None if the step has no such value, for example because it has not completed.
    """
    if not step.has_completed or step.result is None:
        return None
    value = step.result["Metrics"].get(f"{VALIDATION}:{plan.objective}")
    return None if value is None else float(value)


def ranked(steps: Iterable[AutoMLStep], plan: AutoMLPlan) -> list[AutoMLStep]:
    """Return the candidates with an objective, the best first; ties keep their order."""
    scored = [
        (value, step)
        for step in steps
        if step.kind.is_candidate and (value := objective_of(step, plan)) is not None
    ]
    scored.sort(key=lambda pair: pair[0], reverse=plan.maximize)
    return [step for _, step in scored]


def tried(steps: Sequence[AutoMLStep], plan: AutoMLPlan) -> list[Tried]:
    """Convert ended candidates to observations for the search algorithm."""
    return [
        Tried(algorithm=step.recipe["algorithm"], seen=_observation(step, plan)) for step in steps
    ]


def pending(algorithm: str, point: Point) -> Tried:
    """Return the pending observation of a candidate that was just decided on."""
    return Tried(algorithm=algorithm, seen=Observation(point=point, phase=TrialPhase.PENDING))


def _observation(step: AutoMLStep, plan: AutoMLPlan) -> Observation:
    point = step.recipe["point"]
    value = objective_of(step, plan)
    phase = TrialPhase.FAILED if value is None else TrialPhase.SUCCEEDED
    return Observation(point=point, phase=phase, objective=value)
