"""Attempts of a run: starts of the training processes, each on one set of instances."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainyard.runs.continuity.spans import Span, spans_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.runs.continuity.starts import TrainingStart
    from trainyard.runs.record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One attempt: a lifetime of a job's instances, and the start of the training processes on them, if any."""

    job: JobRecord
    span: Span
    start: TrainingStart | None

    @property
    def waiting_seconds(self) -> float:
        """Seconds from the end of the previous attempt (or the job's creation) until the instances were available."""
        span = self.span
        return _seconds(span.began_at, span.ended_at if span.ready_at is None else span.ready_at)

    @property
    def startup_seconds(self) -> float:
        """Seconds from the availability of instances to the start of the processes.

        If no processes started, the seconds to the end of the attempt.
        """
        began = self.start.time if self.start else self.span.ended_at
        return _seconds(self.span.ready_at, began)

    @property
    def training_seconds(self) -> float:
        """Seconds from the start of the processes to the end of training; 0 without a start."""
        if self.start is None:
            return 0.0
        until = self.span.trained_until
        return _seconds(self.start.time, self.start.last_time if until is None else until)

    @property
    def seconds_on_instances(self) -> float:
        """Seconds in which the attempt had instances.

        A job's bill is divided among its attempts in proportion to these seconds.
        """
        return _seconds(self.span.ready_at, self.span.ended_at)

    def lost_work_seconds(self, kept_until: int) -> float:
        """Return the seconds from the end of step `kept_until` to the end of the attempt; 0 without a start."""
        if self.start is None:
            return 0.0
        end = self.start.last_time if self.span.ended_at is None else self.span.ended_at
        return _seconds(self.start.moment_of(kept_until), end)


def lives_of(jobs: Sequence[JobRecord], starts: Sequence[TrainingStart]) -> list[Life]:
    """Return the attempts of all jobs of a task, oldest first."""
    lives: list[Life] = []
    for job in jobs:
        own = [each for each in starts if each.job == job.name]
        lives += _lives_of_job(job, own, after=lives[-1].span.ended_at if lives else None)
    return lives


def _lives_of_job(
    job: JobRecord, starts: list[TrainingStart], *, after: float | None
) -> Iterator[Life]:
    spans = spans_of(job)
    if after is not None and (spans[0].began_at is None or after < spans[0].began_at):
        spans[0] = replace(spans[0], began_at=after)
    later_begins = [each.began_at or 0.0 for each in spans[1:]]
    by_span: list[list[TrainingStart]] = [[] for _ in spans]
    for start in starts:
        by_span[bisect_right(later_begins, start.time)].append(start)
    for span, own in zip(spans, by_span, strict=True):
        yield from _lives_of_span(job, span, own)


def _lives_of_span(job: JobRecord, span: Span, starts: list[TrainingStart]) -> Iterator[Life]:
    """Yield one attempt per start of the training processes in `span`, a lifetime of the job's instances.

    Without a start, the whole lifetime is one attempt. Each further start is a restart on the same instances
    and ends the attempt before it.
    """
    if not starts:
        yield Life(job=job, span=span, start=None)
        return
    for start in starts[:-1]:
        end = start.last_time
        cut = replace(span, ended_by="restarted", trained_until=end, ended_at=end)
        yield Life(job=job, span=cut, start=start)
        span = replace(span, began_at=end, ready_at=end)
    yield Life(job=job, span=span, start=starts[-1])


def _seconds(begin: float | None, end: float | None) -> float:
    return 0.0 if begin is None or end is None else max(0.0, end - begin)
