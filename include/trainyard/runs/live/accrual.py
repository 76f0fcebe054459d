"""Cost of a job while it runs, from its snapshot and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost
from trainyard.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEARCHES = frozenset({"tuning", "automl"})
"""Kinds of jobs that are billed per trial."""


def accrued_usd(job: Mapping[str, Any], *, now: float) -> float | None:
    """Return the cost of a job so far in USD; None if it is unknown.

    The cost of a tuning or AutoML job is unknown until its billed seconds are known.

    Args:
        job: snapshot of the job as a mapping (`JobSnapshot.to_dict`).
        now: epoch seconds.
    """
    if job.get("billable_seconds") is None and job.get("kind") in _SEARCHES:
        return None
    billed_s = round(JobSnapshot.from_dict(job).billed_seconds_at(now))
    return job_cost({**job, "billable_seconds": billed_s}).cost_usd
