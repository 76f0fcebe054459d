"""Bayesian search: suggests the point with the highest expected improvement.

The expectation comes from a Gaussian process that is fitted to the history of trials. The service uses the same
method (Perrone et al., "Amazon SageMaker Automatic Model Tuning", KDD 2021). A suggestion is a function of history
and seed, without other state.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from sagemaker_engine.tuning.gaussian_process import GaussianProcess, fit_kernel
from sagemaker_engine.tuning.observations import TrialPhase
from sagemaker_engine.tuning.ranges import RangeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.gaussian_process import Flags, Floats
    from sagemaker_engine.tuning.observations import Observation
    from sagemaker_engine.tuning.ranges import Point, Space

NUM_SPREAD, NUM_NEAR, NUM_CENTERS = 400, 100, 3
"""Number of candidates spread over the space, number of candidates near each best point, and number of best points."""
FIRST_REACH, NARROWING, NUM_ROUNDS = 0.1, 2.5, 5
"""First distance of near candidates as a share of each range, its divisor per round, and the number of rounds."""
CHANGED_SHARE = 0.5
"""Share of a point's values that a candidate near it changes."""
MAX_SEEN, MAX_FITTED = 150, 64
"""Largest number of trials that are used, and that the kernel is fitted to. The time grows with the cube of both."""
MIN_GAP, NO_PROMISE = 0.01, 1e6
"""Distance that a candidate must have from each running trial in at least one dimension (as a share of the range), and
the penalty for nearer candidates. If all candidates are nearer, one of them is used.
"""
WORST = 20.0
"""Largest loss above the median, in units of the lower quartile's distance from the median; larger ones are clipped."""
BELOW_ONE = 1 - 1e-12


def draw(space: Space, history: Sequence[Observation], *, maximize: bool, seed: int) -> Point:
    """Return the point with the largest expected improvement among random candidates.

    At least one trial of the history must have an objective. Running trials count with their expected result, so that
    parallel trials are not near each other. Trials that were stopped early count with their last value.
    """
    with _blas().limit(limits=1):
        return _draw(space, history, maximize=maximize, rng=np.random.default_rng(seed))


@cache
def _blas() -> ThreadpoolController:
    """Return the controller that limits the threads of numpy and scipy; `draw` limits them to one.

    The matrices of a search are small, so that several threads are not faster. On a busy machine, they spend
    most of their time waiting. They also change the last digits of results.
    """
    return ThreadpoolController()


def _draw(
    space: Space, history: Sequence[Observation], *, maximize: bool, rng: np.random.Generator
) -> Point:
    ended = [each for each in history if each.phase is TrialPhase.SUCCEEDED]
    sign = -1 if maximize else 1
    objectives = [sign * each.objective for each in ended if each.objective is not None]
    losses = without_outliers(np.array(objectives))
    process = _process(space, _shares(space, ended), losses)
    running = _shares(space, [each for each in history if each.phase is TrialPhase.PENDING])
    if len(running):
        process = process.believing(running)
    return _point(space, _most_promising(space, process, running, rng))


def without_outliers(losses: Floats) -> Floats:
    """Return the losses with mean 0 and variance 1, after clipping and compressing those above the median.

    The compression is logarithmic. Without it, a diverged trial would hide the differences between the others. Worked
    example: of 1, 2, 3 and 1,000,000 the first three become -1.20, -0.48 and 0.16. Scaled by mean and variance alone,
    all three would be -0.58.
    """
    middle = np.median(losses)
    unit = middle - np.quantile(losses, 0.25) or losses.std() or 1.0
    scaled = (losses - middle) / unit
    drawn = np.where(scaled > 0, np.log1p(np.clip(scaled, 0, WORST)), scaled)
    return np.asarray((drawn - drawn.mean()) / (drawn.std() or 1.0))


def thinned(losses: Floats, num: int) -> list[int]:
    """Return the sorted indices of at most `num` losses.

    Half of the indices are those of the lowest losses. For the other half, the remaining losses are sorted by
    value, and losses at about equal distances in this order are selected.
    """
    order = losses.argsort(kind="stable")
    if len(order) <= num:
        return list(range(len(order)))
    rest = np.linspace(num // 2, len(order) - 1, num - num // 2).astype(int)
    return sorted([*order[: num // 2].tolist(), *order[rest].tolist()])


def _process(space: Space, points: Floats, losses: Floats) -> GaussianProcess:
    is_categorical = np.array([each.kind is RangeKind.CATEGORICAL for each in space.ranges])
    fitted = thinned(losses, MAX_FITTED)
    kernel = fit_kernel(points[fitted], losses[fitted], is_categorical)
    seen = thinned(losses, MAX_SEEN)
    return GaussianProcess.of(kernel, points[seen], losses[seen])


def _most_promising(
    space: Space, process: GaussianProcess, running: Floats, rng: np.random.Generator
) -> Floats:
    """Return the candidate with the largest expected improvement, as one position from 0 to 1 for each range.

    The first candidates are random or near the best observed points. Each later round tries candidates nearer
    to the best candidate of the previous round. A candidate is avoided if it equals an observed point or is
    near a running trial.
    """
    is_categorical = process.kernel.is_categorical
    centers = process.points[process.losses.argsort(kind="stable")[:NUM_CENTERS]]
    candidates = rng.random((NUM_SPREAD, len(space.ranges)))
    reach = FIRST_REACH
    for _ in range(NUM_ROUNDS + 1):
        near = [_near(each, reach, is_categorical, rng) for each in centers]
        candidates = _as_written(space, np.vstack([candidates, *near]))
        promise = process.log_expected_improvement(candidates)
        promise[_are_at_one_of(process.points, candidates)] -= NO_PROMISE
        promise[_are_near_one_of(running, candidates)] -= NO_PROMISE
        candidates = centers = candidates[[promise.argmax()]]
        reach /= NARROWING
    return np.asarray(candidates[0])


def _near(center: Floats, reach: float, is_categorical: Flags, rng: np.random.Generator) -> Floats:
    """Return random points around `center`.

    Each position of a point is changed with probability CHANGED_SHARE. The change has the standard deviation
    `reach`. Results outside of 0 to 1 are mirrored at the border. A changed category is drawn at random.
    """
    shape = (NUM_NEAR, len(center))
    moved = np.abs(center + reach * rng.standard_normal(shape))
    moved = np.clip(np.where(moved > 1, 2 - moved, moved), 0, 1)
    changed = np.where(is_categorical, rng.random(shape), moved)
    return np.where(rng.random(shape) < CHANGED_SHARE, changed, center)


def _are_at_one_of(points: Floats, candidates: Floats) -> Flags:
    """Return for each candidate whether it is equal to one of the points."""
    return np.asarray((candidates[:, None, :] == points[None, :, :]).all(axis=2).any(axis=1))


def _are_near_one_of(running: Floats, candidates: Floats) -> Flags:
    """Return for each candidate whether it is nearer than MIN_GAP to a running trial in all dimensions."""
    gaps = np.abs(candidates[:, None, :] - running[None, :, :]).max(axis=2)
    return np.asarray((gaps < MIN_GAP).any(axis=1))


def _as_written(space: Space, shares: Floats) -> Floats:
    """Round the positions of integers and categories in `shares` to the exact positions of values.

    `shares` has a row per point and a column per range. Its elements are positions on the ranges' scales, from
    0 to 1. Each integer and each category covers an interval of its range's scale, and the exact position is
    the center of the interval (`Range.share_of`). Changes `shares` in place and returns it.
    """
    for index, each in enumerate(space.ranges):
        if each.num_values != math.inf:
            shares[:, index] = [
                each.share_of(each.at(min(share, BELOW_ONE))) for share in shares[:, index]
            ]
    return shares


def _shares(space: Space, trials: Sequence[Observation]) -> Floats:
    rows = [[each.share_of(trial.point[each.name]) for each in space.ranges] for trial in trials]
    return np.array(rows).reshape(len(rows), len(space.ranges))


def _point(space: Space, shares: Floats) -> Point:
    return {
        each.name: each.at(min(float(share), BELOW_ONE))
        for each, share in zip(space.ranges, shares, strict=True)
    }
