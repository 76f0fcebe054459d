"""Hyperband's sampler: Optuna's TPE (tree-structured Parzen estimator).

Each suggestion builds a new Optuna study from the observations of the search so far. TPE ranks
early-stopped trials by the last step that they reached, and trials with the same last step by their value.
The Gaussian process of Bayesian searches (module `bayesian`) cannot use such a ranking, so it is not used
for Hyperband. A suggestion takes 5 ms of CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from sagemaker_engine.tuning.observations import TrialPhase
from sagemaker_engine.tuning.ranges import Range, RangeKind, RangeScaling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.observations import Observation
    from sagemaker_engine.tuning.ranges import Point, Space, Value

optuna.logging.set_verbosity(optuna.logging.ERROR)


NUM_CANDIDATES = 96
"""Number of candidates per suggestion. Optuna's default of 24 explores too much for searches of few trials."""


def draw(space: Space, history: Sequence[Observation], *, maximize: bool, seed: int) -> Point:
    """Return the next point that TPE suggests for the history.

    Running trials count as bad trials, so that parallel trials are not near each other. Trials that were
    stopped early count by the objective values that they had logged.
    """
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=1, n_ei_candidates=NUM_CANDIDATES
    )
    distributions = {each.name: _distribution(each) for each in space.ranges}
    study = optuna.create_study(
        sampler=sampler, direction="maximize" if maximize else "minimize", study_name="tuning"
    )
    study.add_trials([_trial(each, space, distributions) for each in history])
    asked = study.ask(distributions)
    return {each.name: each.write(_outer(each, asked.params[each.name])) for each in space.ranges}


def _trial(
    seen: Observation, space: Space, distributions: dict[str, BaseDistribution]
) -> FrozenTrial:
    params = {each.name: _inner(each, seen.point[each.name]) for each in space.ranges}
    members: dict[str, Any] = {"params": params, "distributions": distributions}
    if seen.phase is TrialPhase.PENDING:
        return create_trial(state=TrialState.RUNNING, **members)
    if not seen.stopped:
        return create_trial(value=seen.objective, **members)
    values = dict(enumerate(seen.curve, start=1))
    return create_trial(state=TrialState.PRUNED, intermediate_values=values, **members)


def _distribution(given: Range) -> BaseDistribution:
    """Return Optuna's distribution for a range.

    For a range with ReverseLogarithmic scaling, it is a logarithmic distribution of (1 - value).
    """
    if given.kind is RangeKind.CATEGORICAL:
        return CategoricalDistribution(tuple(given))
    is_log = given.scaling in {RangeScaling.LOGARITHMIC, RangeScaling.REVERSE_LOGARITHMIC}
    if given.kind is RangeKind.INTEGER:
        return IntDistribution(int(given.low), int(given.high), log=is_log)
    if given.scaling is RangeScaling.REVERSE_LOGARITHMIC:
        return FloatDistribution(1 - given.high, 1 - given.low, log=True)
    return FloatDistribution(given.low, given.high, log=is_log)


def _inner(given: Range, text: str) -> Value:
    value = given.read(text)
    if value is None:
        raise AssertionError(f"{given.name}={text} was not drawn from its range")
    if given.scaling is RangeScaling.REVERSE_LOGARITHMIC:
        return min(max(1 - float(value), 1 - given.high), 1 - given.low)
    return value


def _outer(given: Range, value: Value) -> Value:
    return 1 - float(value) if given.scaling is RangeScaling.REVERSE_LOGARITHMIC else value
