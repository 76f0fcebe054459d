"""Responses of Describe and List operations for a tuning job and its trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.tuning import results
from sagemaker_engine.tuning.plan import OBJECTIVE_KEY, read_plan
from sagemaker_engine.tuning.rounds import in_order_of_end, progress_in
from sagemaker_engine.tuning.trial_jobs import resources_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.tuning.plan import TuningPlan
    from sagemaker_engine.tuning.tables import TrialRow, TuningRow


def describe_tuning_job(
    context: ApiContext, row: TuningRow, trials: Sequence[TrialRow]
) -> dict[str, Any]:
    """Return the members of the response to DescribeHyperParameterTuningJob."""
    plan = read_plan(row.request)
    summaries = trial_summaries(context, row, trials)
    best = results.best_of(summaries, maximize=plan.maximize)
    return {
        **_as_shown(row.request, plan),
        **_summary(row, summaries),
        "BestTrainingJob": best,
        "OverallBestTrainingJob": _overall_best(row, best, plan),
        "TuningJobCompletionDetails": _completion_details(list(trials), plan),
        "ConsumedResources": {"RuntimeInSeconds": int(_end(context, row) - row.created_at)},
    }


def tuning_summary(
    context: ApiContext, row: TuningRow, trials: Sequence[TrialRow]
) -> dict[str, Any]:
    """Return the HyperParameterTuningJobSummary of a tuning job."""
    return _summary(row, trial_summaries(context, row, trials))


def _summary(row: TuningRow, summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    config = row.request["HyperParameterTuningJobConfig"]
    return {
        **row.state,
        "HyperParameterTuningJobName": row.name,
        "HyperParameterTuningJobArn": row.arn,
        "Strategy": config["Strategy"],
        "ResourceLimits": config["ResourceLimits"],
        "CreationTime": row.created_at,
        "LastModifiedTime": row.modified_at,
        "TrainingJobStatusCounters": results.status_counters(summaries),
        "ObjectiveStatusCounters": results.objective_counters(summaries),
    }


def trial_summaries(
    context: ApiContext, row: TuningRow, trials: Sequence[TrialRow]
) -> list[dict[str, Any]]:
    """Return a summary of each trial with a training job, sorted by number."""
    plan = read_plan(row.request)
    found = ((trial, _result(context, row, trial, plan)) for trial in trials)
    return [results.summary(trial, result, plan) for trial, result in found if result is not None]


def _result(
    context: ApiContext, row: TuningRow, trial: TrialRow, plan: TuningPlan
) -> dict[str, Any] | None:
    """Return the stored result of a trial, or the current result of its training job if none is stored.

    Return None if the training job does not exist or belongs to another tuning job.
    """
    if trial.result is not None:
        return trial.result
    try:
        job = context.store.get(ResourceKind.TRAINING, trial.job_name)
    except UnknownJobError:
        return None
    if job.request.get("TuningJobArn") != row.arn:
        return None
    return results.result_of(job, plan.definitions[trial.definition], ())


def _as_shown(request: dict[str, Any], plan: TuningPlan) -> dict[str, Any]:
    """Return the request with the members that the service's responses add to each training job definition.

    - StaticHyperParameters also has the name of the objective metric.
    - OutputDataConfig has a KmsKeyId, which is empty if the request has none.
    - ResourceConfig is present even if the request has the resources in another member.

    `attach` of the SDK v2 reads all three, although that SDK never sends ResourceConfig.
    """
    shown = [
        {
            "ResourceConfig": resources_of(each.template),
            **each.template,
            "OutputDataConfig": {"KmsKeyId": "", **each.template["OutputDataConfig"]},
            "StaticHyperParameters": {
                **each.template.get("StaticHyperParameters", {}),
                OBJECTIVE_KEY: each.metric,
            },
        }
        for each in plan.definitions
    ]
    if "TrainingJobDefinition" in request:
        return {**request, "TrainingJobDefinition": shown[0]}
    return {**request, "TrainingJobDefinitions": shown}


def _overall_best(
    row: TuningRow, best: dict[str, Any] | None, plan: TuningPlan
) -> dict[str, Any] | None:
    config = row.request.get("WarmStartConfig", {})
    if config.get("WarmStartType") != "IdenticalDataAndAlgorithm":
        return None
    own = [] if best is None else [{**best, "TuningJobName": row.name}]
    inherited = [each["Summary"] for each in row.inherited]
    return results.best_of([*own, *inherited], maximize=plan.maximize)


def _completion_details(trials: list[TrialRow], plan: TuningPlan) -> dict[str, Any]:
    progress = progress_in(trials, plan)
    details: dict[str, Any] = {
        "NumberOfTrainingJobsObjectiveNotImproving": progress.num_not_improving
    }
    if progress.converged_at is not None:
        last = in_order_of_end(trials)[progress.converged_at]
        details["ConvergenceDetectedTime"] = last.get("TrainingEndTime", last["CreationTime"])
    return details


def _end(context: ApiContext, row: TuningRow) -> float:
    return float(row.state.get("HyperParameterTuningEndTime", context.clock()))
