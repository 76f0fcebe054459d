"""Goodput of a run: its wall time by cause, and the share spent on steps that survived.

Every moment between the run's start and its end has one cause, so the causes add up to the wall time. If several things
happened at once, the time counts for one of them only: for the training, if it is among them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.snapshot import WAITING_STATUSES
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Cause(StrEnum):
    """Activity or wait on which a run spends its wall time."""

    STEPPING = "stepping"
    DATA_STALL = "stalled on data"
    CHECKPOINTING = "checkpointing"
    REDONE = "steps redone later"
    CAPACITY = "waiting for capacity"
    STARTING = "starting"
    FINISHING = "uploading"
    DATA = "preparing data"
    TESTING = "smoke test"
    SEARCHING = "searching"
    EVALUATING = "evaluating"
    PERSON = "waiting for a person"
    AIRFLOW = "in Airflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpan:
    """One start of the training processes, and the time until these processes ended.

    Attributes:
        job: the training job.
        at: time at which the processes began to train, epoch seconds.
        lost_from: time at which the last step that survived ended; None if no work was lost.
        lost_until: time at which the processes ended; set together with `lost_from`.
        restarted_from: time at which the processes ended, if the next start is on the same instances; otherwise
            None.
    """

    job: str
    at: float
    lost_from: float | None = None
    lost_until: float | None = None
    restarted_from: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Wall seconds of a run by cause; they add up to `wall_seconds`."""

    wall_seconds: float
    seconds: Mapping[Cause, float]

    @property
    def share(self) -> float:
        """Share of the wall time that was spent on steps that survived, 0 to 1."""
        return self.seconds[Cause.STEPPING] / self.wall_seconds if self.wall_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON-safe data, without the causes that took no time."""
        return {
            "wall_seconds": self.wall_seconds,
            "share": self.share,
            "seconds": {str(cause): seconds for cause, seconds in self.seconds.items() if seconds},
        }


def goodput(
    *,
    begun_at: float,
    ended_at: float,
    tasks: Iterable[Mapping[str, Any]],
    jobs: Iterable[Mapping[str, Any]],
    starts: Sequence[TrainingSpan],
    stall_seconds: float = 0.0,
    data_wait_share: float = 0.0,
) -> Goodput:
    """Return the wall time of a run by cause.

    Args:
        begun_at: start of the run, epoch seconds.
        ended_at: end of the run, or now if it has not ended; epoch seconds.
        tasks: `task_id`, `start`, `end`, `asked_at` and `answered_at` of each task. The last two are the times
            at which a person was asked a question and answered it. A time is None until the event has happened.
        jobs: `task_id`, `name`, `created_at`, `started_at`, `ended_at` and `transitions` of each job of the
            run.
        starts: starts of the training processes, in order; empty for a script that prints no metric line.
        stall_seconds: seconds that checkpoints blocked the training.
        data_wait_share: share of a step's time that ranks wait for data, 0 to 1.
    """
    spans = [
        *(span for each in tasks for span in _task_spans(each, ended_at)),
        *(span for each in jobs for span in _job_spans(each, starts, ended_at)),
        *(span for each in starts for span in _lost_spans(each)),
        *(span for each, after in pairwise(starts) for span in _restart_spans(each, after)),
    ]
    seconds = _by_cause(spans, begun_at, ended_at)
    stalled = min(stall_seconds, seconds[Cause.STEPPING])
    seconds[Cause.STEPPING] -= stalled
    waited = seconds[Cause.STEPPING] * data_wait_share
    seconds[Cause.STEPPING] -= waited
    seconds[Cause.CHECKPOINTING] += stalled
    seconds[Cause.DATA_STALL] += waited
    return Goodput(
        wall_seconds=max(0.0, ended_at - begun_at), seconds={each: seconds[each] for each in Cause}
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of time with a cause. Of overlapping spans, only the one with the highest `rank` counts."""

    begin: float
    end: float
    cause: Cause
    rank: int


_OF_TASKS = {
    TaskId.SHARD: Cause.DATA,
    TaskId.PREPARE: Cause.DATA,
    TaskId.CHECK_DATA: Cause.DATA,
    TaskId.SMOKE_TEST: Cause.TESTING,
    TaskId.TUNE: Cause.SEARCHING,
    TaskId.SEARCH: Cause.SEARCHING,
    TaskId.EVALUATE: Cause.EVALUATING,
}
_TASK, _QUESTION, _JOB, _TRAINING, _LOST = range(5)
_STARTING = frozenset({"Downloading", "DownloadingTrainingImage"})
_FINISHING = frozenset({"Uploading", "Stopping"})


def _task_spans(task: Mapping[str, Any], now: float) -> Iterator[_Span]:
    cause = _OF_TASKS.get(task["task_id"])
    if cause and task["start"] is not None:
        yield _Span(task["start"], task["end"] or now, cause, _TASK)
    if task.get("asked_at") is not None:
        answered_at = task["answered_at"] or task["end"] or now
        yield _Span(task["asked_at"], answered_at, Cause.PERSON, _QUESTION)


def _job_spans(
    job: Mapping[str, Any], starts: Sequence[TrainingSpan], now: float
) -> Iterator[_Span]:
    until = job.get("ended_at") or now
    is_training = job["task_id"] == TaskId.TRAIN
    own = sorted(each.at for each in starts if each.job == job["name"])
    known_until = 0.0
    for status, begin, end in _statuses(job, until):
        if status in WAITING_STATUSES:
            yield _Span(begin, end, Cause.CAPACITY, _JOB)
        elif not is_training:
            yield _Span(begin, end, _OF_TASKS.get(job["task_id"], Cause.AIRFLOW), _JOB)
        elif status in _STARTING:
            yield _Span(begin, end, Cause.STARTING, _JOB)
        elif status in _FINISHING:
            yield _Span(begin, end, Cause.FINISHING, _JOB)
        else:
            # The host's clock, which times a start, may be a little before the service's.
            began = next(
                (each for each in own if known_until <= each <= end), end if own else begin
            )
            yield _Span(begin, max(begin, began), Cause.STARTING, _JOB)
            yield _Span(max(begin, began), end, Cause.STEPPING, _TRAINING)
        known_until = begin if status in _STARTING else end


def _statuses(job: Mapping[str, Any], until: float) -> Iterator[tuple[str, float, float]]:
    """Yield a job's statuses with their start and end, in epoch seconds.

    A processing job has no secondary statuses: it gets `Starting` and `Processing`. A tuning or AutoML job
    has no start time, and nothing is yielded for it. Its time is counted by the span of its task instead.
    """
    if job.get("transitions"):
        for each in job["transitions"]:
            yield str(each["status"]), each["start"], each["end"] or until
        return
    created, started = job.get("created_at"), job.get("started_at")
    if created is not None and job.get("kind") not in {"tuning", "automl"}:
        yield "Starting", created, started or until
    if started is not None:
        yield "Processing", started, until


def _lost_spans(start: TrainingSpan) -> Iterator[_Span]:
    if start.lost_from is not None and start.lost_until is not None:
        yield _Span(start.lost_from, start.lost_until, Cause.REDONE, _LOST)


def _restart_spans(start: TrainingSpan, after: TrainingSpan) -> Iterator[_Span]:
    if start.restarted_from is not None:
        yield _Span(start.restarted_from, after.at, Cause.STARTING, _LOST)


def _by_cause(spans: Sequence[_Span], begun_at: float, ended_at: float) -> dict[Cause, float]:
    """Return the seconds of each cause, without overlap."""
    known = [
        each for each in spans if each.end > max(begun_at, each.begin) and each.begin < ended_at
    ]
    moments = {begun_at, ended_at}
    moments |= {min(max(at, begun_at), ended_at) for each in known for at in (each.begin, each.end)}
    seconds: dict[Cause, float] = defaultdict(float)
    for begin, end in pairwise(sorted(moments)):
        covering = [each for each in known if each.begin <= begin and each.end >= end]
        holds = max(covering, key=lambda each: each.rank, default=None)
        seconds[holds.cause if holds else Cause.AIRFLOW] += end - begin
    return seconds
