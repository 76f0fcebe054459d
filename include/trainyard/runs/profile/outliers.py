"""Outliers: steps that took much longer than the others, with their slow part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING

from trainyard.rules.pace import StepOutlier
from trainyard.rules.records import MarkRecord, Record
from trainyard.rules.series import LEAST_OBSERVATIONS
from trainyard.runs.profile.step_times import Part, StepTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_AFTER_CHECKPOINT = "a checkpoint was taken just before it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """One slow step.

    Attributes:
        seconds: duration on the slowest rank.
        median_seconds: median duration of the run's steps.
        rank, part: the rank and the part of the step with the largest excess. The excess is the duration of a
            part on a rank minus the median duration of this part on this rank. The excess of `communication`,
            which includes waits for other ranks, is halved for this comparison. `part` is None if parts were
            not measured.
        excess_seconds: the excess of that part on that rank, in seconds, not halved.
        beside: another event at that time, such as a checkpoint.
    """

    step: int
    rank: int
    seconds: float
    median_seconds: float
    part: Part | None
    excess_seconds: float
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """All slow steps of a run, the slowest first. The duration of a step is that on its slowest rank.

    Attributes:
        num_steps: number of compared steps.
        median_seconds: their median duration; 0 if there are none.
        limit_seconds: a longer step is an outlier; None if there are too few steps.
    """

    num_steps: int
    median_seconds: float
    limit_seconds: float | None
    found: tuple[Outlier, ...]


def outlier_limit(seconds: Sequence[float]) -> float | None:
    """Return the seconds above which a step is an outlier, by the rule StepOutlier with its robust parameters.

    Return None if there are too few steps.
    """
    if len(seconds) < LEAST_OBSERVATIONS:
        return None
    return StepOutlier(**StepOutlier.ROBUST).robust_limit(seconds)


def find_outliers(times: Sequence[StepTime], records: Iterable[Record]) -> Outliers:
    """Return the outliers among the steps, each with its slow part."""
    by_step = {
        step: list(own)
        for step, own in groupby(sorted(times, key=attrgetter("step")), key=attrgetter("step"))
    }
    longest = {step: max(each.seconds for each in own) for step, own in by_step.items()}
    limit = outlier_limit(list(longest.values()))
    middle = median(longest.values()) if longest else 0.0
    slow = [] if limit is None else [step for step, took in longest.items() if took > limit]
    marks = _marks(records) if slow else {}
    usual = _usual(times) if slow else {}
    found = [_outlier(by_step[step], usual, middle, marks.get(step, "")) for step in slow]
    return Outliers(
        num_steps=len(by_step),
        median_seconds=middle,
        limit_seconds=limit,
        found=tuple(sorted(found, key=lambda each: -each.seconds)),
    )


def _usual(times: Sequence[StepTime]) -> Mapping[tuple[int, Part], float]:
    """Return the median seconds of each part on each rank, by (rank, part)."""
    by_rank = groupby(sorted(times, key=attrgetter("rank")), key=attrgetter("rank"))
    return {
        (rank, part): median(each.parts[part] for each in own)
        for rank, group in by_rank
        for own in [list(group)]
        for part in Part
    }


def _outlier(
    ranks: Sequence[StepTime],
    usual: Mapping[tuple[int, Part], float],
    middle: float,
    beside: str,
) -> Outlier:
    """Return the outlier, with the part that most exceeds its usual seconds.

    `communication`, which includes waits for other ranks, is chosen only if its excess is more than twice that of
    every other part.

    Args:
        ranks: the step on each rank.
        usual: median seconds of each part, by (rank, part).
        middle: median duration of the run's steps, in seconds.
        beside: see `Outlier`.
    """
    grown = [
        (each.parts[part] - usual[each.rank, part], each.rank, part)
        for each in ranks
        for part in Part
    ]
    own = max((each for each in grown if each[2] is not Part.COMMUNICATION), key=lambda e: e[0])
    any_part = max(grown, key=lambda each: each[0])
    excess, rank, part = own if own[0] >= any_part[0] / 2 else any_part
    is_known = any(each.has_parts for each in ranks)
    return Outlier(
        step=ranks[0].step,
        rank=rank,
        seconds=max(each.seconds for each in ranks),
        median_seconds=middle,
        part=part if is_known else None,
        excess_seconds=excess,
        beside=beside,
    )


def _marks(records: Iterable[Record]) -> dict[int, str]:
    """Return the text `_AFTER_CHECKPOINT` for each step that directly follows a checkpoint, by step.

    A checkpoint that is recorded at step s precedes step s + 1.
    """
    return {
        each.step + 1: _AFTER_CHECKPOINT
        for each in records
        if isinstance(each, MarkRecord) and each.kind == "checkpoint"
    }
