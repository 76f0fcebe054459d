"""Values of the next trial: a pure function of strategy, history and seed."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from sagemaker_engine.tuning.observations import TrialPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.observations import Observation
    from sagemaker_engine.tuning.ranges import Point, Space

MIN_START, MAX_START = 3, 10
MAX_REDRAWS = 32
MAX_ENUMERATED = 100_000


class TuningStrategy(StrEnum):
    """HyperParameterTuningJobStrategyType of the API."""

    BAYESIAN = "Bayesian"
    RANDOM = "Random"
    HYPERBAND = "Hyperband"
    GRID = "Grid"


def suggest(
    strategy: TuningStrategy,
    space: Space,
    history: Sequence[Observation],
    *,
    maximize: bool,
    seed: int,
    number: int,
    num_start: int = MAX_START,
) -> Point:
    """Return the values of trial `number`; the same arguments give the same values.

    Until `num_start` trials have succeeded, Bayesian and Hyperband use points of a Latin hypercube.

    A grid search takes the first untried point. Any other search chooses a point. If this point was tried
    before, the search draws random points until one is untried, at most 31. After the 31st, the size of the
    space decides:

    - At most 100,000 points: the search takes the first untried point. It repeats a point only if all were
      tried.
    - More points: the search takes the last random point, which may be a repeated one.

    If the space is empty, every trial gets the empty point.
    """
    tried = {_key(each.point) for each in history}
    if strategy is TuningStrategy.GRID:
        return next((p for p in space.points() if _key(p) not in tried), next(space.points()))
    point = _draw(
        strategy, space, history, maximize=maximize, seed=seed, number=number, num_start=num_start
    )
    for redraw in range(1, MAX_REDRAWS):
        if _key(point) not in tried:
            return point
        point = draw_random(space, seed=mix(seed, number, redraw))
    if space.num_points <= MAX_ENUMERATED:
        return next((p for p in space.points() if _key(p) not in tried), point)
    return point


def draw_random(space: Space, *, seed: int) -> Point:
    """Return a random point, uniform on the scale of each range."""
    shares = Random(seed)  # noqa: S311  # A search, no secret.
    return {each.name: each.at(shares.random()) for each in space.ranges}


def draw_start(space: Space, *, seed: int, number: int, num_start: int) -> Point:
    """Return the start point `number` of a search, from a Latin hypercube.

    Each range is divided into `num_start` equal parts. Of any `num_start` points with consecutive numbers, no
    two are in the same part of a range.
    """
    jitter = Random(mix(seed, number))  # noqa: S311
    point = {}
    for index, each in enumerate(space.ranges):
        parts = list(range(num_start))
        Random(mix(seed, -1 - index)).shuffle(parts)  # noqa: S311
        part = parts[number % num_start]
        point[each.name] = each.at((part + jitter.random()) / num_start)
    return point


def _draw(
    strategy: TuningStrategy,
    space: Space,
    history: Sequence[Observation],
    *,
    maximize: bool,
    seed: int,
    number: int,
    num_start: int,
) -> Point:
    known = [each for each in history if each.phase is not TrialPhase.FAILED]
    num_ended = sum(each.phase is TrialPhase.SUCCEEDED for each in known)
    if strategy is TuningStrategy.RANDOM or not space.ranges:
        return draw_random(space, seed=mix(seed, number))
    if num_ended < num_start:
        return draw_start(space, seed=seed, number=number, num_start=num_start)
    if strategy is TuningStrategy.BAYESIAN:
        from sagemaker_engine.tuning import bayesian  # noqa: PLC0415  # numpy and scipy are slow to import

        return bayesian.draw(space, known, maximize=maximize, seed=mix(seed, number))
    from sagemaker_engine.tuning import samplers  # noqa: PLC0415  # Optuna takes a second to import

    return samplers.draw(space, known, maximize=maximize, seed=mix(seed, number))


def num_start_of(max_jobs: int) -> int:
    """Return the number of start points of a search: a third of `max_jobs`, but at least 3 and at most 10."""
    return min(MAX_START, max(MIN_START, max_jobs // 3))


def mix(*numbers: int) -> int:
    """Return a seed below 2**31 that depends on all numbers."""
    text = ",".join(str(number) for number in numbers)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def _key(point: Point) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(point.items()))
