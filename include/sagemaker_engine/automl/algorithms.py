"""Choice of the next candidate's algorithm and hyperparameters, as a function of history and seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.automl.plan import Problem
from sagemaker_engine.tuning.observations import Observation, TrialPhase, is_better
from sagemaker_engine.tuning.ranges import Point, Range, RangeKind, RangeScaling, Space
from sagemaker_engine.tuning.search import TuningStrategy, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.automl.plan import AutoMLPlan

NUM_START = 3
"""Number of an algorithm's candidates that must succeed before Bayesian optimization proposes its points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One earlier candidate: its algorithm, its hyperparameters, and its objective once it has one."""

    algorithm: str
    seen: Observation


def _log(name: str, low: float, high: float, kind: RangeKind = RangeKind.CONTINUOUS) -> Range:
    return Range(name=name, kind=kind, low=low, high=high, scaling=RangeScaling.LOGARITHMIC)


def _even(name: str, low: float, high: float, kind: RangeKind = RangeKind.CONTINUOUS) -> Range:
    return Range(name=name, kind=kind, low=low, high=high)


def _one_of(name: str, *values: str) -> Range:
    return Range(name=name, kind=RangeKind.CATEGORICAL, values=values)


_SCALER = _one_of("scaler", "standard", "quantile", "power")
_CLASS_WEIGHT = _one_of("class_weight", "none", "balanced")
_BOOSTING = (
    _log("learning_rate", 0.01, 0.3),
    _log("min_samples_leaf", 2, 100, RangeKind.INTEGER),
    _log("l2", 1e-6, 10.0),
)
_FOREST = (_even("max_features", 0.1, 1.0), _log("min_samples_leaf", 1, 20, RangeKind.INTEGER))
_RANGES: dict[str, tuple[Range, ...]] = {
    "randomforest": _FOREST,
    "extra-trees": _FOREST,
    "xgboost": (*_BOOSTING, _even("max_depth", 2, 10, RangeKind.INTEGER)),
    "lightgbm": (*_BOOSTING, _log("max_leaf_nodes", 4, 128, RangeKind.INTEGER)),
    "mlp": (
        _SCALER,
        _log("width", 16, 256, RangeKind.INTEGER),
        _even("depth", 1, 2, RangeKind.INTEGER),
        _log("alpha", 1e-6, 1e-1),
        _log("learning_rate", 1e-4, 1e-2),
    ),
}
_DEFAULTS: dict[str, Point] = {
    "linear-learner": {"scaler": "standard", "C": "1.0", "alpha": "1.0"},
    "randomforest": {"max_features": "0.3", "min_samples_leaf": "1"},
    "extra-trees": {"max_features": "0.3", "min_samples_leaf": "1"},
    "xgboost": {
        "learning_rate": "0.1",
        "min_samples_leaf": "10",
        "l2": "1.0",
        "max_depth": "6",
    },
    "lightgbm": {
        "learning_rate": "0.1",
        "min_samples_leaf": "20",
        "l2": "1e-06",
        "max_leaf_nodes": "31",
    },
    "mlp": {
        "scaler": "standard",
        "width": "64",
        "depth": "1",
        "alpha": "0.0001",
        "learning_rate": "0.001",
    },
}


def space_of(algorithm: str, problem: Problem) -> Space:
    """Return the search space of an algorithm."""
    is_classifier = problem is not Problem.REGRESSION
    if algorithm == "linear-learner":
        strength = _log("C", 1e-3, 1e2) if is_classifier else _log("alpha", 1e-3, 1e3)
        ranges: tuple[Range, ...] = (_SCALER, strength)
    else:
        ranges = _RANGES[algorithm]
    weighs = is_classifier and algorithm != "mlp"
    return Space((*ranges, _CLASS_WEIGHT) if weighs else ranges)


def default_point(algorithm: str, problem: Problem) -> Point:
    """Return the hyperparameters of an algorithm's first candidate: the library's defaults, or values near them."""
    space = space_of(algorithm, problem)
    values = {**_DEFAULTS[algorithm], "class_weight": "none"}
    return {name: value for name, value in values.items() if name in space.names}


def propose(plan: AutoMLPlan, history: Sequence[Tried], *, seed: int) -> tuple[str, Point]:
    """Return the algorithm and the point (the hyperparameters) of the candidate after `history`.

    First, each algorithm gets one candidate with its default point. After that, every second candidate uses
    the best algorithm so far, and the others use all algorithms in turn. The points of these later candidates
    come from a Latin hypercube until `NUM_START` candidates of the algorithm have succeeded. From then on,
    Bayesian optimization proposes them.
    """
    number = len(history)
    if number < len(plan.algorithms):
        algorithm = plan.algorithms[number]
        return algorithm, default_point(algorithm, plan.problem)
    algorithm = plan.algorithms[number // 2 % len(plan.algorithms)]
    if number % 2 == 1:
        algorithm = _best(plan, history) or algorithm
    own = [each.seen for each in history if each.algorithm == algorithm]
    point = suggest(
        TuningStrategy.BAYESIAN,
        space_of(algorithm, plan.problem),
        own,
        maximize=plan.maximize,
        seed=seed,
        number=number,
        num_start=NUM_START,
    )
    return algorithm, point


def _best(plan: AutoMLPlan, history: Sequence[Tried]) -> str | None:
    """Return the algorithm of the best candidate; None if no candidate has succeeded."""
    best: tuple[float, str] | None = None
    for each in history:
        value = each.seen.objective
        if each.seen.phase is not TrialPhase.SUCCEEDED or value is None:
            continue
        if best is None or is_better(value, best[0], maximize=plan.maximize):
            best = (value, each.algorithm)
    return best[1] if best else None
