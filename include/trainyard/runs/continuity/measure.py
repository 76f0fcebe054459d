"""Measurement of a run's continuity from log lines and jobs: values per attempt, and their sums.

A step of an attempt survives if no later attempt resumed from an earlier step. The surviving steps of all
attempts are the lineage of the training. A step line of the log covers a range of sample positions. For
the surviving steps, `Coverage` counts the positions that are covered once, repeatedly or not at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.cost.job_cost import known_total
from trainyard.runs.continuity.attempts import lives_of
from trainyard.runs.continuity.bills import bills_of, shares_of
from trainyard.runs.continuity.document import Attempt, Continuity
from trainyard.runs.continuity.starts import read_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainyard.runs.continuity.attempts import Life
    from trainyard.runs.continuity.bills import BillShare
    from trainyard.runs.continuity.log_lines import LogLine
    from trainyard.runs.continuity.starts import TrainingStart
    from trainyard.runs.record import JobRecord

MOST_REDONE_LOSSES = 200


def measure_continuity(
    lines: Iterable[LogLine], jobs: Sequence[JobRecord], *, why_no_log: str | None = None
) -> Continuity:
    """Return the continuity of a run's training.

    Memory grows by a few hundred bytes per line.

    Args:
        lines: `trainyard ` lines of all jobs, in any order.
        jobs: jobs of the training task, oldest first.
        why_no_log: reason if the log could not be read.
    """
    if not jobs:
        return Continuity(why_unknown="no training job of this run is known")
    starts = read_starts(lines)
    lives = lives_of(jobs, starts)
    attempts = _attempts(lives)
    bills = bills_of(jobs)
    continuity = Continuity(
        why_unknown=None if starts else why_no_log or _why_no_line(jobs),
        is_finished=jobs[-1].succeeded,
        interruptions=sum(each.interruptions for each in jobs),
        **_lineage_sums(lives, attempts),
        **_time_sums(attempts),
        billable_seconds=known_total(each.billable_seconds for each in bills),
        saved_seconds=known_total(each.saved_seconds for each in bills),
        billed_usd=known_total(each.billed_usd for each in bills),
        saved_usd=known_total(each.saved_usd for each in bills),
        attempts=tuple(_rounded(each) for each in attempts),
        bills=tuple(bills),
    )
    return _rounded(continuity)


def _why_no_line(jobs: Sequence[JobRecord]) -> str:
    if all(job.started_at is None for job in jobs):
        return "no job got instances, so nothing was trained"
    return (
        "the jobs' logs have no start line with samples and seed, as the shipped scripts write it"
    )


def _attempts(lives: Sequence[Life]) -> list[Attempt]:
    started = [each.start for each in lives if each.start]
    kept = iter(kept_until(started))
    ends = [next(kept) if each.start else None for each in lives]
    number_of = {name: n for n, name in enumerate(dict.fromkeys(e.job.name for e in lives), 1)}
    last = max((n for n, life in enumerate(lives) if life.start), default=-1)
    return [
        _attempt(
            life,
            number=number + 1,
            job_attempt=number_of[life.job.name],
            kept_until=end,
            share=share,
            is_last=number == last,
        )
        for number, (life, end, share) in enumerate(zip(lives, ends, shares_of(lives), strict=True))
    ]


def _attempt(
    life: Life,
    *,
    number: int,
    job_attempt: int,
    kept_until: int | None,
    share: BillShare,
    is_last: bool,
) -> Attempt:
    job, span, start = life.job, life.span, life.start
    facts = {} if start is None or kept_until is None else _facts(start, kept_until)
    lost = 0.0 if kept_until is None or is_last else life.lost_work_seconds(kept_until)
    return Attempt(
        number=number,
        job=job.name,
        job_attempt=job_attempt,
        instance_attempt=span.number,
        ended_by=span.ended_by,
        instance_type=job.instance_type,
        instance_count=job.instance_count,
        is_spot=job.is_spot,
        rung=job.rung,
        rung_reason=job.rung_reason,
        began_at=span.began_at,
        ready_at=span.ready_at,
        started_at=start.time if start else None,
        ended_at=span.ended_at,
        waiting_seconds=life.waiting_seconds,
        startup_seconds=life.startup_seconds,
        training_seconds=life.training_seconds,
        lost_work_seconds=lost,
        billed_seconds=share.billed_seconds,
        billed_usd=share.billed_usd,
        saved_usd=share.saved_usd,
        **facts,
    )


def _facts(start: TrainingStart, kept_until: int) -> dict[str, Any]:
    """Return the fields of an attempt that come from its log lines."""
    steps_kept = max(0, kept_until - start.resumed_at)
    steps_redone = max(0, start.last_step - max(kept_until, start.resumed_at))
    redone = [
        (s.step, s.loss)
        for s in start.steps
        if s.step > kept_until and s.loss is not None and math.isfinite(s.loss)
    ]
    stride = max(1, math.ceil(len(redone) / MOST_REDONE_LOSSES))
    return {
        "stream": start.stream,
        "attempt_id": start.attempt_id,
        "world_size": start.world_size,
        "resumed_at": start.resumed_at,
        "first_step": start.resumed_at + 1 if start.last_step > start.resumed_at else None,
        "last_step_logged": start.last_step,
        "kept_until": kept_until,
        "steps_kept": steps_kept,
        "steps_redone": steps_redone,
        "samples_kept": steps_kept * start.global_batch_size,
        "samples_rolled_back": steps_redone * start.global_batch_size,
        "num_checkpoints": len(start.stalls),
        "stall_seconds": sum(start.stalls),
        "longest_stall_seconds": max(start.stalls, default=0.0),
        "redone_losses": tuple(sorted(redone)[::stride]),
    }


def _lineage_sums(lives: Sequence[Life], attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Return the fields of `Continuity` about surviving steps, seed and batch size, by name.

    Return an empty mapping if no attempt has a start.
    """
    starts = [each.start for each in lives if each.start]
    if not starts:
        return {}
    kept, last = kept_until(starts), starts[-1]
    batch = last.global_batch_size
    found = Coverage(without_line=min(starts[0].resumed_at, *kept) * batch)
    for start, until in zip(starts, kept, strict=True):
        found += coverage_of(start, until=until)
    redone = sum(each.steps_redone for each in attempts)
    return {
        "final_step": kept[-1],
        "seed": last.seed,
        "num_samples": last.num_samples,
        "global_batch_size": batch,
        "max_steps": last.max_steps,
        "weights_sha256": last.weights_sha256,
        "steps_redone": redone,
        "samples_rolled_back": redone * batch,
        "samples_seen": found.seen,
        "samples_repeated": found.repeated,
        "samples_missed": found.missed,
        "samples_without_line": found.without_line,
        "epochs": kept[-1] * batch / last.num_samples,
    }


def kept_until(starts: Sequence[TrainingStart]) -> list[int]:
    """Return the last surviving step of each start.

    For the last start, this is its last step. For an earlier start, it is the smallest step from which any
    later start resumed. A start can resume from an older checkpoint than the start before it did, or from step
    0 if checkpoints are damaged. If the value is below the start's own `resumed_at`, no step of that start
    survived.

    Worked example: three starts resume at steps 0, 30 and 10, and run to steps 40, 50 and 60. Their last
    surviving steps are 10, 10 and 60, so no step of the second start survived.
    """
    kept: list[int] = []
    limit: int | None = None
    for start in reversed(starts):
        kept.append(start.last_step if limit is None else limit)
        limit = start.resumed_at if limit is None else min(limit, start.resumed_at)
    return kept[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts of sample positions that the step lines of the log cover once, repeatedly or not at all.

    One object counts the positions of one start of the training processes, in a range of its steps. The sum of
    several objects counts the positions of several starts.

    Attributes:
        seen: positions that at least one line covers.
        repeated: additional coverings (a position that three lines cover counts two).
        missed: positions that no line covers, although a later step line of the same start exists.
        without_line: positions after the last step line of their start, and positions before the step from
            which the first start in the log resumed.
    """

    seen: int = 0
    repeated: int = 0
    missed: int = 0
    without_line: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            seen=self.seen + other.seen,
            repeated=self.repeated + other.repeated,
            missed=self.missed + other.missed,
            without_line=self.without_line + other.without_line,
        )


def coverage_of(start: TrainingStart, *, until: int) -> Coverage:
    """Count a start's sample positions that its step lines cover once, repeatedly or not at all.

    The positions are those of the steps after `start.resumed_at`, up to and including `until`. Steps after
    `until` were rolled back. A step line covers the positions that were used since the previous step line.
    """
    first, end = start.resumed_at * start.global_batch_size, until * start.global_batch_size
    if end <= first:
        return Coverage()
    clipped = ((max(first, step.first), min(end, step.end)) for step in start.steps)
    pieces = sorted((low, high) for low, high in clipped if low < high)
    seen = repeated = missed = 0
    reach = first
    for low, high in pieces:
        missed += max(0, low - reach)
        repeated += max(0, min(reach, high) - low)
        seen += max(0, high - max(reach, low))
        reach = max(reach, high)
    rest = end - reach
    is_left_out = any(step.end >= end for step in start.steps)
    if is_left_out:
        return Coverage(seen=seen, repeated=repeated, missed=missed + rest)
    return Coverage(seen=seen, repeated=repeated, missed=missed, without_line=rest)


def _time_sums(attempts: Sequence[Attempt]) -> dict[str, Any]:
    later = attempts[1:]
    waiting = sum(each.waiting_seconds for each in later)
    startup = sum(each.startup_seconds for each in later)
    work = sum(each.lost_work_seconds for each in attempts)
    training = sum(each.training_seconds for each in attempts)
    stall = sum(each.stall_seconds for each in attempts)
    return {
        "lost_work_seconds": work,
        "waiting_seconds": waiting,
        "startup_seconds": startup,
        "lost_seconds": work + waiting + startup,
        "training_seconds": training,
        "num_checkpoints": sum(each.num_checkpoints for each in attempts),
        "stall_seconds": stall,
        "longest_stall_seconds": max((e.longest_stall_seconds for e in attempts), default=0.0),
        "stall_share": stall / training if training else None,
    }


D = TypeVar("D", Attempt, Continuity)


def _rounded(values: D) -> D:
    """Return a copy of `values` with rounded numbers.

    Stall times, the stall share and epochs are rounded to 1e-6, all other times to milliseconds. Money is not
    rounded.
    """
    floats: dict[str, Any] = {
        each.name: value
        for each in fields(values)
        if isinstance(value := getattr(values, each.name), float) and not each.name.endswith("_usd")
    }
    digits = {name: 6 if name in _FINE else 3 for name in floats}
    return replace(values, **{name: round(floats[name], digits[name]) for name in floats})


_FINE = frozenset({"stall_seconds", "longest_stall_seconds", "stall_share", "epochs"})
