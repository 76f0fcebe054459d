"""Lifetimes of a job's instances from its secondary statuses, divided at interruptions and restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.job_status import TERMINAL_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.runs.record import JobRecord

_ENDS = {"Interrupted": "interrupted", "Restarting": "restarted"}
_HAS_INSTANCES = frozenset({"Downloading", "DownloadingTrainingImage", "Training", "Uploading"})
_TIMED_OUT = frozenset({"MaxRuntimeExceeded", "MaxWaitTimeExceeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One lifetime of a job's instances. Times are epoch seconds.

    Attributes:
        number: 1, 2, ... within the job.
        ended_by: completed, interrupted, restarted, failed, stopped, timed_out or running.
        began_at: creation of the job, or end of the previous lifetime.
        ready_at: time when instances were available; None if they never were.
        trained_until: end of the last status `Training`; ended_at without one.
        ended_at: end of the instances; None while they exist.
    """

    number: int
    ended_by: str
    began_at: float | None
    ready_at: float | None
    trained_until: float | None
    ended_at: float | None


def spans_of(job: JobRecord) -> list[Span]:
    """Return the lifetimes of the job's instances, oldest first; at least one."""
    parts: list[list[Mapping[str, Any]]] = [[]]
    cuts: list[tuple[str, float]] = []
    for each in job.transitions:
        if each["status"] in _ENDS:
            cuts.append((_ENDS[each["status"]], each["start"]))
            parts.append([])
        parts[-1].append(each)
    begins = [job.created_at, *(at for _, at in cuts)]
    ends = [*cuts, (_ended_by(job), job.ended_at)]
    return [
        _span(number, part, began_at=began_at, ended_by=ended_by, ended_at=ended_at)
        for number, (part, began_at, (ended_by, ended_at)) in enumerate(
            zip(parts, begins, ends, strict=True), 1
        )
    ]


def _span(
    number: int,
    part: Sequence[Mapping[str, Any]],
    *,
    began_at: float | None,
    ended_by: str,
    ended_at: float | None,
) -> Span:
    ready_at = next((each["start"] for each in part if each["status"] in _HAS_INSTANCES), None)
    trained = [each["end"] for each in part if each["status"] == "Training"]
    trained_until = trained[-1] if trained and trained[-1] is not None else ended_at
    return Span(
        number=number,
        ended_by=ended_by,
        began_at=began_at,
        ready_at=ready_at,
        trained_until=trained_until,
        ended_at=ended_at,
    )


def _ended_by(job: JobRecord) -> str:
    if job.secondary_status in _TIMED_OUT:
        return "timed_out"
    return job.status.lower() if job.status in TERMINAL_STATUSES else "running"
