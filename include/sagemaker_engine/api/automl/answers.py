"""Responses of Describe and List operations for an AutoML job and its candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl import results
from sagemaker_engine.automl.plan import tabular
from sagemaker_engine.automl.step_jobs import (
    IMAGE,
    TRAIN,
    VALIDATION,
    explainability_uri,
    insights_uri,
    metric_names,
)
from sagemaker_engine.automl.tables import StepKind
from sagemaker_engine.searches.search import ENDING
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.tuning.observations import TrialPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.automl.plan import AutoMLPlan
    from sagemaker_engine.automl.tables import AutoMLRow, AutoMLStep

_SETS = {TRAIN: "Train", VALIDATION: "Validation"}
_STANDARD_ONLY = frozenset({"LogLoss", "InferenceLatency"})


def describe_automl_job(
    context: ApiContext, row: AutoMLRow, steps: Sequence[AutoMLStep]
) -> dict[str, Any]:
    """Return the members of the response to DescribeAutoMLJobV2."""
    plan = results.plan_of(row, steps)
    best = next(iter(results.ranked(steps, plan)), None) if plan else None
    return {
        **row.request,
        **automl_summary(row),
        "AutoMLProblemTypeConfigName": "Tabular",
        "BestCandidate": candidate(context, row, best, steps, plan) if best and plan else None,
        "ResolvedAttributes": _resolved(row, plan) if plan else None,
    }


def automl_summary(row: AutoMLRow) -> dict[str, Any]:
    """Return the AutoMLJobSummary of a job."""
    return {
        **{name: value for name, value in row.state.items() if name != ENDING},
        "AutoMLJobName": row.name,
        "AutoMLJobArn": row.arn,
        "CreationTime": row.created_at,
        "LastModifiedTime": row.modified_at,
    }


def candidates(
    context: ApiContext, row: AutoMLRow, steps: Sequence[AutoMLStep]
) -> list[dict[str, Any]]:
    """Return an AutoMLCandidate per candidate whose training job was created, sorted by number."""
    plan = results.plan_of(row, steps)
    if plan is None:
        return []
    launched = [each for each in steps if each.kind.is_candidate and each.launched_at is not None]
    return [candidate(context, row, each, steps, plan) for each in launched]


def candidate(
    context: ApiContext,
    row: AutoMLRow,
    step: AutoMLStep,
    steps: Sequence[AutoMLStep],
    plan: AutoMLPlan,
) -> dict[str, Any]:
    """Return the AutoMLCandidate of a step that trains a candidate."""
    result = step.result or _running(context, step)
    objective = results.objective_of(step, plan)
    found = {
        "CandidateName": step.job_name,
        "CandidateStatus": _status(result["Status"]),
        "ObjectiveStatus": _objective_status(step, objective).value,
        "CandidateSteps": _steps(row, step, steps),
        "CreationTime": result["CreationTime"],
        "LastModifiedTime": result.get("EndTime", result["CreationTime"]),
        "EndTime": result.get("EndTime"),
        "FailureReason": result.get("FailureReason"),
        "CandidateProperties": _properties(row, step, steps, plan),
    }
    if objective is not None:
        found["FinalAutoMLJobObjectiveMetric"] = {
            "Type": "Maximize" if plan.maximize else "Minimize",
            "MetricName": plan.objective,
            "StandardMetricName": plan.objective,
            "Value": objective,
        }
    if step.has_completed:
        found["InferenceContainers"] = [_container(result["ModelDataUrl"])]
    return found


def _running(context: ApiContext, step: AutoMLStep) -> dict[str, Any]:
    try:
        return results.result_of(context.store.get(ResourceKind.TRAINING, step.job_name))
    except UnknownJobError:  # The search creates the job again.
        return {"Status": "InProgress", "CreationTime": step.decided_at, "Metrics": {}}


def _status(status: str) -> str:
    return status if status in {"Completed", "InProgress", "Failed", "Stopped"} else "Stopping"


def _objective_status(step: AutoMLStep, objective: float | None) -> TrialPhase:
    if step.result is None:
        return TrialPhase.PENDING
    return TrialPhase.FAILED if objective is None else TrialPhase.SUCCEEDED


def _steps(row: AutoMLRow, step: AutoMLStep, steps: Sequence[AutoMLStep]) -> list[dict[str, Any]]:
    """Return an AutoMLCandidateStep for each job that contributed to the candidate of `step`.

    The first job is the data analysis, and the last is the candidate's own job. If the candidate is an
    ensemble, the training jobs of its member models are between them.
    """
    members = step.recipe.get("members", ())
    made_by = [steps[0], *(each for each in steps if each.job_name in members), step]
    start = row.arn.rpartition(":")[0]
    return [
        {
            "CandidateStepType": f"AWS::SageMaker::{each.kind.job_kind.wire_name}",
            "CandidateStepArn": f"{start}:{each.kind.job_kind.value}-job/{each.job_name}",
            "CandidateStepName": each.job_name,
        }
        for each in made_by
    ]


def _container(model: str) -> dict[str, Any]:
    return {
        "Image": IMAGE,
        "ModelDataUrl": model,
        "Environment": {
            "SAGEMAKER_PROGRAM": "inference.py",
            "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
        },
    }


def _properties(
    row: AutoMLRow, step: AutoMLStep, steps: Sequence[AutoMLStep], plan: AutoMLPlan
) -> dict[str, Any] | None:
    """Return CandidateProperties: metrics and reports of a candidate; None if it has neither."""
    found: dict[str, Any] = {}
    metrics = (step.result or {}).get("Metrics", {})
    known = set(metric_names(plan.problem))
    data = [
        _datum(data_set, name, value)
        for data_set, name, value in (
            (*full.partition(":")[::2], value) for full, value in sorted(metrics.items())
        )
        if data_set in _SETS and name in known
    ]
    if data:
        found["CandidateMetrics"] = data
    last = steps[-1]
    explained = last.kind is StepKind.EXPLANATION and last.has_completed
    if explained and last.recipe["candidate"] == step.job_name:
        found["CandidateArtifactLocations"] = {
            "Explainability": explainability_uri(row, step.job_name),
            "ModelInsights": insights_uri(row, step.job_name),
        }
    return found or None


def _datum(data_set: str, name: str, value: float) -> dict[str, Any]:
    names = {} if name in _STANDARD_ONLY else {"MetricName": name}
    return {**names, "StandardMetricName": name, "Value": value, "Set": _SETS[data_set]}


def _resolved(row: AutoMLRow, plan: AutoMLPlan) -> dict[str, Any]:
    criteria = tabular(row.request).get("CompletionCriteria", {})
    return {
        "AutoMLJobObjective": {"MetricName": plan.objective},
        "CompletionCriteria": {**criteria, "MaxCandidates": plan.max_candidates},
        "AutoMLProblemTypeResolvedAttributes": {
            "TabularResolvedAttributes": {"ProblemType": plan.problem.value}
        },
    }
