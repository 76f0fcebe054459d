"""Cost of a job while it runs, from its snapshot and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost
from trainyard.sagemaker_api.snapshot import WAITING_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEARCHES = frozenset({"tuning", "automl"})
"""Kinds of jobs whose trials are billed, each by itself."""


def accrued_usd(job: Mapping[str, Any], *, now: float) -> float | None:
    """Return what a job has cost so far, at the on-demand price; None if that is not known, as of a search.

    A job that the service has not billed yet is counted from its transitions: time with instances, waiting left out.

    Args:
        job: its snapshot as a mapping (`JobSnapshot.to_dict`).
        now: epoch seconds.
    """
    billable = job.get("billable_seconds")
    if billable is None and job.get("kind") in _SEARCHES:
        return None
    if billable is None:
        billable = round(_seconds_with_instances(job, now=now))
    return job_cost({**job, "billable_seconds": billable}).cost_usd


def _seconds_with_instances(job: Mapping[str, Any], *, now: float) -> float:
    until = float(job.get("ended_at") or now)
    if transitions := job.get("transitions"):
        working = (each for each in transitions if each["status"] not in WAITING_STATUSES)
        spans = (float(each["end"] or until) - float(each["start"]) for each in working)
        return sum(max(0.0, span) for span in spans)
    started = job.get("started_at")
    return max(0.0, until - float(started)) if started else 0.0
