"""Ask-and-tell search: the next trainings to run, from the results of the earlier ones. Pure.

A search has several rounds of parallel trainings. For each new trial, an Optuna study is rebuilt from
all earlier results, and its sampler draws the trial. So the same results always give the same
trials. Each trial starts with a short training. The best third gets a long training, and the rest is pruned
(successive halving, Li et al.: A System for Massively Parallel Hyperparameter Tuning, MLSys 2020,
section 3). The last round uses its remaining capacity for long trainings of the next best trials.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainyard.specs.tuning_job import ObjectiveType, SearchStrategy
from trainyard.specs.tuning_job_ranges import CategoricalRange, IntegerRange, is_logarithmic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from trainyard.specs.run_conf_tuning import SearchSettings
    from trainyard.specs.tuning_job_ranges import ParameterRange

REDUCTION = 3
"""One in three trials gets a long training, with three times as many steps."""
NUM_ROUNDS = 6
"""Number of rounds of parallel trainings in the DAG. The default of 12 trainings gives two per round."""
SHORT, LONG = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTraining:
    """One training of a trial: the short one, or the long one of a good trial.

    Attributes:
        number: number of the trial, from 1.
        rung: `SHORT` for the trial's short training, `LONG` for its long one.
        num_steps: optimizer steps of the training.
        values: the trial's hyperparameters.
        budget_usd: most that all attempts of the training's job may cost together; None = no limit.
    """

    number: int
    rung: int
    num_steps: int
    values: Mapping[str, Any] = field(default_factory=dict)
    budget_usd: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the training as JSON-safe data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the training from the data of `to_dict`."""
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of one training; `objective` is None if the training failed or never logged it."""

    asked: TrialTraining
    objective: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-safe data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the result from the data of `to_dict`."""
        return cls(asked=TrialTraining.from_dict(data["asked"]), objective=data["objective"])


def rung_steps(search: SearchSettings, *, max_steps: int) -> tuple[int, int]:
    """Return the optimizer steps of a short and of a long training.

    The short one has the steps of a trial, the long one three times as many, but at most `max_steps`. Worked example
    with trials of 100 steps: (100, 300) for `max_steps=400`, and (100, 200) for `max_steps=200`.
    """
    return search.num_steps, min(max_steps, REDUCTION * search.num_steps)


def ask(
    search: SearchSettings,
    results: Sequence[TrialResult],
    *,
    count: int,
    steps: tuple[int, int],
    is_last: bool,
    seed: int,
) -> list[TrialTraining]:
    """Return the next trainings to run.

    These are long trainings of the best trials, followed by short trainings of new trials.

    The last round has no new trials, unless it is also the first.

    Args:
        search: the settings of the search.
        results: results of all trainings so far, in the order of their creation.
        count: largest number of trainings to return.
        steps: optimizer steps of a short and of a long training.
        is_last: whether this is the last round, after which a new trial cannot have a long
            training.
        seed: seed of the sampler, from which each new trial's seed is derived.
    """
    shorts = [each for each in results if each.asked.rung == SHORT]
    long = {each.asked.number for each in results if each.asked.rung == LONG}
    ranked = _ranked(shorts, search)
    deserving = ranked if is_last else ranked[: len(shorts) // REDUCTION]
    batch = [
        TrialTraining(
            number=each.asked.number, rung=LONG, num_steps=steps[LONG], values=each.asked.values
        )
        for each in deserving
        if each.asked.number not in long
    ][:count]
    first = len({each.asked.number for each in results}) + 1
    pending: list[TrialTraining] = list(batch)
    for number in range(first, first + (0 if is_last and results else count - len(batch))):
        values = _draw(search, results, pending, number=number, seed=seed)
        pending.append(
            TrialTraining(number=number, rung=SHORT, num_steps=steps[SHORT], values=values)
        )
    return pending


def winner(search: SearchSettings, results: Sequence[TrialResult]) -> TrialResult | None:
    """Return the result of the best training, or None if no training has an objective.

    Short trainings count only if no long training has an objective.
    """
    for rung in (LONG, SHORT):
        ranked = _ranked([each for each in results if each.asked.rung == rung], search)
        if ranked:
            return ranked[0]
    return None


def _ranked(results: Sequence[TrialResult], search: SearchSettings) -> list[TrialResult]:
    sign = -1 if search.objective_type is ObjectiveType.MAXIMIZE else 1
    usable = [
        each for each in results if each.objective is not None and math.isfinite(each.objective)
    ]
    return sorted(usable, key=lambda each: (sign * (each.objective or 0.0), each.asked.number))


def _draw(
    search: SearchSettings,
    results: Sequence[TrialResult],
    pending: Sequence[TrialTraining],
    *,
    number: int,
    seed: int,
) -> dict[str, Any]:
    """Return the hyperparameters of new trial `number`.

    They are random for the strategy Random, otherwise from Optuna's TPE sampler.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    mixed = (seed * 1_000_003 + number) % 2**32
    sampler = (
        optuna.samplers.RandomSampler(seed=mixed)
        if search.strategy is SearchStrategy.RANDOM
        else optuna.samplers.TPESampler(seed=mixed, n_startup_trials=4)
    )
    distributions = {name: _distribution(each) for name, each in search.ranges.items()}
    is_maximized = search.objective_type is ObjectiveType.MAXIMIZE
    direction = (
        optuna.study.StudyDirection.MAXIMIZE
        if is_maximized
        else optuna.study.StudyDirection.MINIMIZE
    )
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.add_trials(_frozen(results, pending, distributions))
    params = study.ask(distributions).params
    return {name: params[name] for name in search.ranges}


def _frozen(
    results: Sequence[TrialResult],
    pending: Sequence[TrialTraining],
    distributions: Mapping[str, BaseDistribution],
) -> list[FrozenTrial]:
    """Return the trials as Optuna's frozen trials, one per trial.

    A trial is complete after a long training, pruned after a short one, running if it is pending,
    and failed if it has no objective.
    """
    from optuna.trial import TrialState, create_trial

    by_number: dict[int, list[TrialResult]] = {}
    for each in results:
        by_number.setdefault(each.asked.number, []).append(each)
    trials = []
    for number in sorted(by_number):
        last = max(
            by_number[number], key=lambda each: (each.objective is not None, each.asked.rung)
        )
        members: dict[str, Any] = {
            "params": dict(last.asked.values),
            "distributions": dict(distributions),
        }
        if last.objective is None:
            trials.append(create_trial(state=TrialState.FAIL, **members))
        elif last.asked.rung == LONG:
            trials.append(create_trial(value=last.objective, **members))
        else:
            seen = {last.asked.num_steps: last.objective}
            trials.append(
                create_trial(state=TrialState.PRUNED, intermediate_values=seen, **members)
            )
    running = [
        create_trial(
            state=TrialState.RUNNING,
            params=dict(each.values),
            distributions=dict(distributions),
        )
        for each in pending
        if each.rung == SHORT
    ]
    return trials + running


def _distribution(given: ParameterRange) -> BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(given, CategoricalRange):
        return CategoricalDistribution(given.values)
    is_log = is_logarithmic(given)
    if isinstance(given, IntegerRange):
        return IntDistribution(given.min_value, given.max_value, log=is_log)
    return FloatDistribution(given.min_value, given.max_value, log=is_log)
