"""Time limit of an AutoML job within its budget, and the result of its task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.cost.job_cost import job_cost
from trainyard.errors import BudgetExceededError, Finding, SpecError
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate, AutoMLFacts
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.specs.automl_job import AutoMLJobSpec

MIN_RUNTIME_S = 60
"""Shortest useful time limit: in less time no candidate is ready."""
TIME_IS_UP = "MaxAutoMLJobRuntimeReached"


def runtime_ceiling(spec: AutoMLJobSpec, *, paid_usd: float) -> int | None:
    """Return the seconds that the rest of the budget pays for, at most `spec.max_runtime_s`; None without a budget.

    Worked example: 0.50 USD are left, and 2 candidates run at a time on ml.m5.4xlarge at 0.922 USD/h. The
    result is 0.5 x 3600 / (2 x 0.922) = 976 s.

    Raises:
        SpecError: the price is unknown.
        BudgetExceededError: the rest of the budget is enough for less than MIN_RUNTIME_S.
    """
    if spec.budget_usd is None:
        return None
    rate = _usd_per_s(spec)
    if rate is None:
        finding = Finding(
            where="budget_usd",
            what="cannot be enforced, because the price catalogue has no price for candidate_instance_type",
            got=spec.candidate_instance_type,
            next_step="remove budget_usd and set max_runtime_s (max_time_s in autopilot_tabular), or choose an "
            "instance type with a price in your own spec",
        )
        raise SpecError(finding)
    left_usd = spec.budget_usd - paid_usd
    seconds = int(left_usd / rate)
    if seconds >= MIN_RUNTIME_S:
        return seconds if spec.max_runtime_s is None else min(seconds, spec.max_runtime_s)
    needed_usd = paid_usd + MIN_RUNTIME_S * rate
    raise BudgetExceededError(
        "the rest of the AutoML job's budget is too small for a candidate",
        budget_usd=spec.budget_usd,
        needed_usd=needed_usd,
        where="budget_usd",
        got=f"{format_usd(paid_usd)} paid for earlier jobs, {format_usd(max(0.0, left_usd))} left",
        allowed=f"{format_usd(spec.budget_usd)} in total; the shortest useful job, {format_duration(MIN_RUNTIME_S)}, "
        f"costs {format_usd(MIN_RUNTIME_S * rate)}",
        next_step="raise budget_usd, or remove it and set max_runtime_s (max_time_s in autopilot_tabular); in your own "
        "spec, num_parallel can be lowered",
    )


def automl_result(
    spec: AutoMLJobSpec,
    *,
    job: JobSnapshot,
    facts: AutoMLFacts,
    candidates: Sequence[AutoMLCandidate],
    leaderboard_uri: str,
) -> dict[str, Any]:
    """Return the part of the task's result that is not in the job's snapshot, JSON-safe.

    Args:
        spec: the job.
        job: the ended job, with the billed time of the jobs that it started (`AutoMLCandidates.billed`).
        facts: the job's facts, with a best candidate.
        candidates: all candidates, the best first.
        leaderboard_uri: S3 address of the leaderboard.
    """
    best = facts.best
    assert best is not None  # noqa: S101  # the caller has seen it
    is_cut = job.secondary_status == TIME_IS_UP
    rate = _usd_per_s(spec)
    limit_s = spec.max_runtime_s
    return {
        "automl_job_name": job.name,
        "automl_job_arn": job.arn,
        "status": job.status,
        "ended_by": "time" if is_cut else "service",
        "is_complete": not is_cut,
        "problem_type": facts.problem_type,
        "objective": {
            "metric_name": facts.metric_name,
            "type": "Maximize" if facts.maximize else "Minimize",
        },
        "best": best.to_dict(),
        "model_artifact": best.model_artifact,
        "image_uri": best.image_uri,
        "num_candidates": dict(Counter(each.status for each in candidates)),
        "partial_failures": list(facts.partial_failures),
        "billable_seconds": job.billable_seconds,
        "cost_usd": job_cost(job.to_dict()).cost_usd,
        "budget_usd": spec.budget_usd,
        "estimated_cost_usd": None if rate is None or limit_s is None else rate * limit_s,
        "leaderboard_uri": leaderboard_uri,
        "explainability_uri": best.explainability_uri,
        "insights_uri": best.insights_uri,
    }


def _usd_per_s(spec: AutoMLJobSpec) -> float | None:
    """Return the on-demand price per second of `num_parallel` candidates in USD; None if it is unknown."""
    known = catalogue().types.get(spec.candidate_instance_type)
    if known is None or known.price_usd_per_hour is None:
        return None
    return known.price_usd_per_hour * spec.num_parallel / SECONDS_PER_HOUR
