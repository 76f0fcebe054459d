"""Bayesian search: a Gaussian process over the history, and the point with the highest expected gain.

So does the service (Perrone et al., "Amazon SageMaker Automatic Model Tuning", KDD 2021). A suggestion is a function of
history and seed, and nothing is kept between two.
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

NUM_SPREAD, NUM_NEAR, NUM_CENTRES = 400, 100, 3
"""Candidates: all over the space, and near each of the best points."""
FIRST_REACH, NARROWING, NUM_ROUNDS = 0.1, 2.5, 5
"""How far from a point near is, as a share of each range, and how it shrinks from one round to the next."""
CHANGED_SHARE = 0.5
"""How many of a point's values a candidate near it changes."""
MAX_SEEN, MAX_FITTED = 150, 64
"""How many trials are looked at, and of those, to fit the kernel: the time grows with their cube."""
MIN_GAP, NO_PROMISE = 0.01, 1e6
"""How far from a running trial the next one is, as a share of some range, unless there is no room."""
WORST = 20.0
"""How far above the median a loss still counts, in distances of the lower quartile from the median."""
BELOW_ONE = 1 - 1e-12


def draw(space: Space, history: Sequence[Observation], *, maximize: bool, seed: int) -> Point:
    """Return the point with the largest expected improvement of those looked at.

    At least one trial of the history must have an objective. Trials that still run are believed to end as expected, so
    that parallel trials keep apart; trials that were stopped early count by their last value.
    """
    with _blas().limit(limits=1):
        return _draw(space, history, maximize=maximize, rng=np.random.default_rng(seed))


@cache
def _blas() -> ThreadpoolController:
    """Return what limits numpy's and scipy's threads.

    They gain nothing on matrices so small, on a busy machine they wait for each other many times as long as the work
    takes, and with another number of them the last digits differ.
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
    """Return the losses with mean 0 and variance 1, those above the median drawn together by the logarithm, and cut.

    How bad a bad trial is says little about where the good ones are, and one that diverged would leave no difference
    between the others: of 1, 2, 3 and 1,000,000 the first three all become -0.58 by mean and variance alone, here
    -1.20, -0.48 and 0.16.
    """
    middle = np.median(losses)
    unit = middle - np.quantile(losses, 0.25) or losses.std() or 1.0
    scaled = (losses - middle) / unit
    drawn = np.where(scaled > 0, np.log1p(np.clip(scaled, 0, WORST)), scaled)
    return np.asarray((drawn - drawn.mean()) / (drawn.std() or 1.0))


def thinned(losses: Floats, num: int) -> list[int]:
    """Return the places of `num` losses in order: the best half of them, and as many evenly spread over the rest."""
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
    """Return the best of many candidates, after rounds of others nearer and nearer to it."""
    is_categorical = process.kernel.is_categorical
    centres = process.points[process.losses.argsort(kind="stable")[:NUM_CENTRES]]
    candidates = rng.random((NUM_SPREAD, len(space.ranges)))
    reach = FIRST_REACH
    for _ in range(NUM_ROUNDS + 1):
        near = [_near(each, reach, is_categorical, rng) for each in centres]
        candidates = _as_written(space, np.vstack([candidates, *near]))
        promise = process.log_expected_improvement(candidates)
        promise[_are_at_one_of(process.points, candidates)] -= NO_PROMISE
        promise[_are_near_one_of(running, candidates)] -= NO_PROMISE
        candidates = centres = candidates[[promise.argmax()]]
        reach /= NARROWING
    return np.asarray(candidates[0])


def _near(centre: Floats, reach: float, is_categorical: Flags, rng: np.random.Generator) -> Floats:
    """Return points around one; what would leave the space is mirrored, a category is any other as well."""
    shape = (NUM_NEAR, len(centre))
    moved = np.abs(centre + reach * rng.standard_normal(shape))
    moved = np.clip(np.where(moved > 1, 2 - moved, moved), 0, 1)
    changed = np.where(is_categorical, rng.random(shape), moved)
    return np.where(rng.random(shape) < CHANGED_SHARE, changed, centre)


def _are_at_one_of(points: Floats, candidates: Floats) -> Flags:
    """Return for each candidate whether it was tried already."""
    return np.asarray((candidates[:, None, :] == points[None, :, :]).all(axis=2).any(axis=1))


def _are_near_one_of(running: Floats, candidates: Floats) -> Flags:
    """Return for each candidate whether it is too near a trial that runs to teach anything else."""
    gaps = np.abs(candidates[:, None, :] - running[None, :, :]).max(axis=2)
    return np.asarray((gaps < MIN_GAP).any(axis=1))


def _as_written(space: Space, shares: Floats) -> Floats:
    """Return the shares of the values that stand for these: of whole numbers and categories, the middle."""
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
