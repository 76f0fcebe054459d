"""Duration of a job, learned from earlier jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.planning.estimate.measurement import JobMeasurement
    from trainyard.planning.estimate.work import JobWork

NEWEST = 5
"""Number of newest jobs whose median is used. Older ones are ignored, because machines and data change."""
SAME, SCALED, OTHER_CLUSTER = (0.9, 1.15), (0.75, 1.4), (0.6, 1.8)
"""Low and high as multiples of the expected seconds, if learned from jobs of the same kind, of another size, and on
another number of instances. For the same kind, the durations of the earlier jobs can widen the range."""
_SAME_LENGTH = 0.05
_SINGULAR = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountRange:
    """Low, expected and high value of an amount."""

    low: float
    expected: float
    high: float

    @classmethod
    def around(cls, expected: float, spread: tuple[float, float]) -> Self:
        """Return the range from `spread[0]` to `spread[1]` times the expected value."""
        return cls(low=spread[0] * expected, expected=expected, high=spread[1] * expected)

    def __add__(self, other: AmountRange) -> AmountRange:
        """Return the sum of both ranges: of the lows, of the expected values and of the highs."""
        return AmountRange(
            low=self.low + other.low,
            expected=self.expected + other.expected,
            high=self.high + other.high,
        )

    def times(self, factor: float) -> AmountRange:
        """Return the range multiplied by a factor."""
        return AmountRange(
            low=factor * self.low, expected=factor * self.expected, high=factor * self.high
        )

    def at_most(self, most: float | None) -> AmountRange:
        """Return the range limited to a bound; None = no bound."""
        if most is None:
            return self
        return AmountRange(
            low=min(self.low, most), expected=min(self.expected, most), high=min(self.high, most)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedSeconds:
    """Predicted duration of one job on its instances, in seconds.

    Attributes:
        total: low, expected and high duration of the whole job.
        fixed_s: part of the expected duration that does not depend on the number of steps.
        basis: source of the figures, in words.
    """

    total: AmountRange
    fixed_s: float
    basis: str


def learned_seconds(work: JobWork, measured: Sequence[JobMeasurement]) -> LearnedSeconds | None:
    """Return the seconds of a job, estimated from the most similar earlier jobs; None if there are none.

    Only jobs with the same task, workload and instance type are used. They come from the first of these groups
    that is not empty:

    1. jobs of the same kind (`JobWork.kind`), on the same numbers of instances and ranks
    2. other jobs on the same numbers of instances and ranks
    3. jobs on other numbers of instances or ranks, scaled by the operations per rank

    Args:
        work: work of the job.
        measured: earlier jobs, newest first.
    """
    alike = [each for each in measured if _is_alike(each.work, work)]
    here = [each for each in alike if each.work.cluster == work.cluster]
    same = [each for each in here if _is_same(each, work)][:NEWEST]
    if same:
        return _same_kind(work, same, here[:NEWEST])
    if here:
        return _scaled(work, here, SCALED, f"scaled from {_jobs(here)} of another size")
    if alike:
        return _scaled(
            work, alike, OTHER_CLUSTER, f"scaled from {_jobs(alike)} on other numbers of instances"
        )
    return None


def _is_alike(earlier: JobWork, work: JobWork) -> bool:
    names = ("task_id", "workload", "instance_type")
    return all(getattr(earlier, name) == getattr(work, name) for name in names)


def _is_same(earlier: JobMeasurement, work: JobWork) -> bool:
    """Return whether an earlier job is of the same kind (`JobWork.kind`) as the job with this work.

    If the training loop of the earlier job was not timed, the two jobs must also have the same number of
    floating-point operations, within 5 %.
    """
    operations = earlier.work.operations
    is_long_as = math.isclose(operations, work.operations, rel_tol=_SAME_LENGTH)
    return earlier.work.kind == work.kind and (_has_loop(earlier) or is_long_as)


def _jobs(measured: Sequence[JobMeasurement]) -> str:
    return f"{len(measured)} earlier job{'' if len(measured) == 1 else 's'}"


def _same_kind(
    work: JobWork, same: Sequence[JobMeasurement], here: Sequence[JobMeasurement]
) -> LearnedSeconds:
    """Return the seconds of a job, estimated from earlier jobs of the same kind (`same`).

    The expected seconds are the sum of two parts:

    - in the training loop: the median seconds per operation of `same`, times the job's operations
    - outside the training loop: the median of `here`, which has jobs of any kind on the same cluster

    If no job of `same` has a timed loop, or the job's operations are unknown, the expected seconds are the
    median of the total seconds of `same`.
    """
    basis = f"{_jobs(same)} of the same kind"
    rates = [(each.loop_s or 0.0) / each.work.operations for each in same if _has_loop(each)]
    if not rates or not work.operations:
        totals = [each.on_instances_s for each in same]
        return _learned(median(totals), totals, fixed_s=min(totals), basis=basis)
    fixed_s = median(each.on_instances_s - (each.loop_s or 0.0) for each in here if _has_loop(each))
    totals = [fixed_s + rate * work.operations for rate in rates]
    return _learned(median(totals), totals, fixed_s=fixed_s, basis=basis)


def _learned(
    expected_s: float, seen: Sequence[float], *, fixed_s: float, basis: str
) -> LearnedSeconds:
    least = AmountRange.around(expected_s, SAME)
    total = AmountRange(low=min(least.low, *seen), expected=expected_s, high=max(least.high, *seen))
    return LearnedSeconds(total=total, fixed_s=fixed_s, basis=basis)


def _scaled(
    work: JobWork, measured: Sequence[JobMeasurement], spread: tuple[float, float], basis: str
) -> LearnedSeconds:
    """Return the seconds of a job, estimated by a fit over earlier jobs (`measured`).

    Usually the durations of the training loops are fitted, with two coefficients: seconds per step, and seconds
    per floating-point operation of a rank. The median of the seconds outside the loop is then added.

    If no training loop was timed, or the job's operations are unknown, the durations of whole jobs are fitted.
    The coefficients are then a constant number of seconds per job, and seconds per operation of a rank.

    Operations of a narrow model take longer. If `JobWork.slowdown` is known for this job and all earlier ones,
    the fit therefore multiplies each job's operations by its slowdown.
    """
    is_known = all(each.slowdown for each in (work, *(each.work for each in measured)))
    per_rank = _slowed_per_rank if is_known else _per_rank
    loops = [each for each in measured if _has_loop(each)]
    if loops and work.operations:
        fixed_s = median(each.on_instances_s - (each.loop_s or 0.0) for each in loops[:NEWEST])
        rows = [(each.work.num_steps, per_rank(each.work), each.loop_s or 0.0) for each in loops]
        per_step, per_operation = fit(rows)
        varying_s = per_step * work.num_steps + per_operation * per_rank(work)
    else:
        rows = [(1, per_rank(each.work), each.on_instances_s) for each in measured]
        fixed_s, per_operation = fit(rows, is_constant_first=True)
        varying_s = per_operation * per_rank(work)
    return LearnedSeconds(
        total=AmountRange.around(fixed_s + varying_s, spread), fixed_s=fixed_s, basis=basis
    )


def _has_loop(measured: JobMeasurement) -> bool:
    return bool(measured.loop_s and measured.work.operations)


def _per_rank(work: JobWork) -> float:
    return work.operations / work.num_ranks


def _slowed_per_rank(work: JobWork) -> float:
    return _per_rank(work) * (work.slowdown or 1.0)


def fit(
    rows: Sequence[tuple[float, float, float]], *, is_constant_first: bool = False
) -> tuple[float, float]:
    """Return the non-negative `a` and `b` of `y = a u + b v` with the least sum of squared relative errors.

    If the rows do not determine both, `a` is 0; with `is_constant_first`, `b` is 0 instead.
    Worked: rows (100, 0, 10) and (100, 1e9, 30): a = 0.1, b = 2e-8.

    Args:
        rows: u, v and y per row; y is positive.
        is_constant_first: if the rows do not determine both, set `b` to 0 instead of `a`.
    """
    scaled = [(u / y, v / y) for u, v, y in rows]
    uu, vv = sum(u * u for u, _ in scaled), sum(v * v for _, v in scaled)
    uv = sum(u * v for u, v in scaled)
    su, sv = sum(u for u, _ in scaled), sum(v for _, v in scaled)
    only_u = (su / uu if uu else 0.0, 0.0)
    only_v = (0.0, sv / vv if vv else 0.0)
    determinant = uu * vv - uv * uv
    if not uu or not vv or determinant <= _SINGULAR * uu * vv:
        return only_u if (is_constant_first and uu) or not vv else only_v
    a, b = (su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant
    if a < 0:
        return only_v
    return only_u if b < 0 else (a, b)
