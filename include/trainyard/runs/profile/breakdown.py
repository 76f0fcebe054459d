"""A training's step time by part: for each rank, and over the steps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from statistics import fmean, median
from typing import TYPE_CHECKING

from trainyard.rules.series import quantile
from trainyard.runs.profile.step_times import Part, StepTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_BINS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBreakdown:
    """Step times of one rank, without the first step of each start.

    Attributes:
        mean_seconds, parts: means over the rank's steps, in seconds; `parts` add up to `mean_seconds`.
        local_seconds: median seconds from the start of a step to its first collective; None if not measured.
    """

    rank: int
    num_steps: int
    mean_seconds: float
    median_seconds: float
    p95_seconds: float
    parts: Mapping[Part, float]
    local_seconds: float | None

    @property
    def shares(self) -> Mapping[Part, float]:
        """The share of each part in the mean step, 0 to 1."""
        return {part: seconds / self.mean_seconds for part, seconds in self.parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBin:
    """A range of consecutive steps, with the mean seconds of each part over these steps and all ranks.

    Attributes:
        first, last: the first and the last step, both included.
        slowest_seconds: duration of the longest of these steps on any rank.
    """

    first: int
    last: int
    parts: Mapping[Part, float]
    slowest_seconds: float

    @property
    def seconds(self) -> float:
        """The mean duration of a step, in seconds."""
        return sum(self.parts.values())


def rank_breakdowns(times: Sequence[StepTime]) -> tuple[RankBreakdown, ...]:
    """Return the mean step time of each rank, divided into parts, over the given steps."""
    by_rank = sorted(times, key=attrgetter("rank", "step"))
    return tuple(
        _rank_breakdown(rank, list(own)) for rank, own in groupby(by_rank, key=attrgetter("rank"))
    )


def over_steps(times: Sequence[StepTime], *, most: int = MOST_BINS) -> tuple[StepBin, ...]:
    """Return the step time in at most `most` bins of equally many steps; the last bin may have fewer."""
    steps = sorted({each.step for each in times})
    width = max(1, -(-len(steps) // most))
    place = {step: index // width for index, step in enumerate(steps)}
    ordered = sorted(times, key=attrgetter("step"))
    return tuple(_bin(list(own)) for _, own in groupby(ordered, key=lambda each: place[each.step]))


def mean_shares(ranks: Sequence[RankBreakdown]) -> Mapping[Part, float]:
    """Return the share of each part in the time of all ranks, 0 to 1; empty if there are no ranks."""
    total = sum(each.mean_seconds * each.num_steps for each in ranks)
    if not total:
        return {}
    return {part: sum(each.parts[part] * each.num_steps for each in ranks) / total for part in Part}


def _rank_breakdown(rank: int, times: list[StepTime]) -> RankBreakdown:
    seconds = [each.seconds for each in times]
    parts = _means(times)
    local = [each.local_seconds for each in times if each.local_seconds is not None]
    return RankBreakdown(
        rank=rank,
        num_steps=len(times),
        mean_seconds=sum(parts.values()),
        median_seconds=median(seconds),
        p95_seconds=quantile(seconds, 0.95),
        parts=parts,
        local_seconds=median(local) if local else None,
    )


def _bin(times: list[StepTime]) -> StepBin:
    return StepBin(
        first=times[0].step,
        last=times[-1].step,
        parts=_means(times),
        slowest_seconds=max(each.seconds for each in times),
    )


def _means(times: Sequence[StepTime]) -> dict[Part, float]:
    return {part: fmean(each.parts[part] for each in times) for part in Part}
