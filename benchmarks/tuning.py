"""Quality of the engine's searches: best loss so far, compared with Optuna used directly and with random search.

    python benchmarks/tuning.py [--seeds 20] [--first-seed 0] [--others]

The engine's decisions are called in this process as its tuner calls them, without jobs: `suggest` with the stored
history for a trial's values, `Hyperband.stops` after every epoch. Three problems (tuning_problems.py):

* Branin (2 dimensions) and Hartmann 6, the loss above the known optimum;
* a table of 400 real trainings (tuning_table.py) over four hyperparameters, the validation error above the least.

`--others` uses Ackley, Rosenbrock and Levy instead, which had no influence on the engine's settings.

Bayesian search is measured by trials, against Optuna's default sampler. Trials run one after the other, and two at a
time. With two, both searches get the loss of a trial when the next but one is requested. Hyperband is measured by
epochs, at most 27 per trial, against Optuna's default sampler with its HyperbandPruner. The epochs of Branin and
Hartmann are synthetic: at epoch e the loss is higher by 2 exp(-e / t), with t from 2 to 8 by the point. The objective
of a trial is its last value. Medians and quartiles are over seeds.

* "random / engine" is the factor on the engine's budget by which the median of random search is as low as the engine's;
  `>` if random search was not as low within its own budget, five times the engine's.
* "engine - Optuna" is the median over seeds of the difference after the whole budget. It has the 95 % interval of
  10,000 bootstrap samples, and the number of seeds whose loss is lower or equal with the engine.
* The last figure is the CPU time of a suggestion.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import checkout  # noqa: F401  # finds the imports below
import numpy as np
import optuna
from tuning_problems import (
    MAX_EPOCHS,
    TuningProblem,
    ackley,
    branin,
    hartmann,
    levy,
    recorded,
    rosenbrock,
)

from sagemaker_engine.tuning.early_stopping import Hyperband
from sagemaker_engine.tuning.observations import Observation, TrialPhase
from sagemaker_engine.tuning.search import TuningStrategy, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.tuning.ranges import Point, Space

NUM_TRIALS, NUM_EPOCHS = 50, 270
RANDOM_FACTOR = 5
BAND = Hyperband(min_resource=1, max_resource=MAX_EPOCHS)
Spent = list[tuple[int, float]]
"""A search as (budget spent, best loss so far), in order."""
TOOK_S: dict[TuningStrategy, list[float]] = {}
"""CPU seconds of every suggestion of the engine."""


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="Search quality of the engine's tuning.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--others", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problems = (
        [ackley(), rosenbrock(), levy()] if options.others else [branin(), hartmann(), recorded()]
    )
    for title, budget, marks, searches in (
        ("Bayesian, by trials", NUM_TRIALS, (10, 20, 30, 50), BY_TRIALS),
        ("Hyperband, by epochs", NUM_EPOCHS, (54, 108, 189, 270), BY_EPOCHS),
    ):
        heads = ["problem", "search", *map(str, marks), "random / engine", "engine - Optuna"]
        print(
            f"\n{title}, seeds {seeds[0]} to {seeds[-1]}: median (quartiles) of the loss above the optimum\n"
        )
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
        for problem in problems:
            runs = {
                name: grid([search(problem, seed) for seed in seeds], length=budget * factor)
                for name, (search, factor) in searches.items()
            }
            for name, curves in runs.items():
                cells = [spread(curves[:, mark - 1]) for mark in marks]
                cells += [ratio_of(runs, budget) if name == "engine" else "", beside(name, runs)]
                print(f"| {problem.name} | {name} | {' | '.join(cells)} |", flush=True)
    for strategy, took_s in TOOK_S.items():
        low, middle, high = np.quantile(took_s, [0.25, 0.5, 0.75]) * 1000
        print(f"\nCPU of a {strategy} suggestion: {middle:.1f} ({low:.1f} to {high:.1f}) ms")


def grid(runs: list[Spent], *, length: int) -> np.ndarray:
    """Return the best value so far after each unit of budget, one row per run; infinite before the first value."""
    rows = np.full((len(runs), length), math.inf)
    for row, spent in zip(rows, runs, strict=True):
        for budget, best in spent:
            row[budget - 1 :] = best
    return rows


def spread(values: np.ndarray) -> str:
    """Return median and quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], method="nearest")
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def beside(name: str, runs: dict[str, np.ndarray]) -> str:
    """Return the final result of an engine's search beside Optuna's with the same seeds; empty for other searches."""
    if not name.startswith("engine"):
        return ""
    ours, theirs = (runs[each][:, -1] for each in (name, name.replace("engine", "optuna")))
    gaps = ours - theirs
    drawn = np.random.default_rng(0).choice(gaps, (10_000, len(gaps)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    num_lower, num_equal = int((gaps < 0).sum()), int((gaps == 0).sum())
    middle = float(np.median(gaps))
    return f"{middle:.3g} ({low:.3g} to {high:.3g}), lower {num_lower}, equal {num_equal} of {len(gaps)}"


def ratio_of(runs: dict[str, np.ndarray], budget: int) -> str:
    """Return the factor on the engine's budget at which random search has the same median."""
    reached = float(np.median(runs["engine"][:, budget - 1]))
    medians = np.median(runs["random"], axis=0)
    needed = np.flatnonzero(medians <= reached)
    if not len(needed):
        return f"> {len(medians) / budget:.1f}"
    return f"{(needed[0] + 1) / budget:.1f}"


def suggested(
    strategy: TuningStrategy, problem: TuningProblem, history: list[Observation], seed: int
) -> Point:
    """Return the engine's next point, and record its CPU time."""
    began = time.thread_time()
    point = suggest(
        strategy, problem.space, history, maximize=False, seed=seed, number=len(history)
    )
    TOOK_S.setdefault(strategy, []).append(time.thread_time() - began)
    return point


def engine_by_trials(problem: TuningProblem, seed: int, *, num_parallel: int = 1) -> Spent:
    """Search by the engine's Bayesian strategy; it does not know the losses of the latest `num_parallel` - 1 trials."""
    history: list[Observation] = []
    losses: list[float] = []
    while len(losses) < NUM_TRIALS:
        point = suggested(TuningStrategy.BAYESIAN, problem, history, seed)
        losses.append(problem.losses(point)[-1])
        history.append(Observation(point=point, phase=TrialPhase.PENDING))
        ended = len(history) - num_parallel
        if ended >= 0:
            history[ended] = replace(
                history[ended], phase=TrialPhase.SUCCEEDED, objective=losses[ended]
            )
    return best_so_far(losses)


def optuna_by_trials(
    problem: TuningProblem,
    seed: int,
    *,
    sampler: Callable[..., optuna.samplers.BaseSampler],
    num: int,
    num_parallel: int = 1,
) -> Spent:
    """Search by an Optuna study, which gets losses with the same delay as the engine."""
    study = optuna.create_study(sampler=sampler(seed=seed))
    trials: list[optuna.Trial] = []
    losses: list[float] = []
    while len(losses) < num:
        trials.append(study.ask())
        losses.append(problem.curve(dict(drawn(trials[-1], problem.space)))[-1])
        ended = len(trials) - num_parallel
        if ended >= 0:
            study.tell(trials[ended], losses[ended])
    return best_so_far(losses)


def best_so_far(losses: list[float]) -> Spent:
    """Return the least loss after each trial."""
    return list(enumerate(itertools.accumulate(losses, min), start=1))


def engine_by_epochs(problem: TuningProblem, seed: int) -> Spent:
    """Search by the engine's Hyperband strategy, one trial after the other."""
    history: list[Observation] = []
    curves: dict[int, tuple[float, ...]] = {}
    spent, best, used = [], math.inf, 0
    while used < NUM_EPOCHS:
        number = len(history)
        point = suggested(TuningStrategy.HYPERBAND, problem, history, seed)
        losses = problem.losses(point)
        epoch, stops = 0, False
        while not stops and used < NUM_EPOCHS:
            epoch, used = epoch + 1, used + 1
            curves[number] = tuple(losses[:epoch])
            stops = BAND.stops(number, curves, seen=epoch - 1, maximize=False)
        history.append(
            Observation(
                point=point,
                phase=TrialPhase.SUCCEEDED,
                objective=losses[epoch - 1],
                curve=curves[number],
                stopped=epoch < MAX_EPOCHS,
            )
        )
        best = min(best, losses[epoch - 1])
        spent.append((used, best))
    return spent


def optuna_by_epochs(problem: TuningProblem, seed: int) -> Spent:
    """Search by an Optuna study with its HyperbandPruner."""
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=MAX_EPOCHS)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner, study_name="hyperband"
    )
    spent, best, used = [], math.inf, 0
    while used < NUM_EPOCHS:
        trial = study.ask()
        losses = problem.curve(dict(drawn(trial, problem.space)))
        epoch, prunes = 0, False
        while not prunes and epoch < MAX_EPOCHS and used < NUM_EPOCHS:
            epoch, used = epoch + 1, used + 1
            trial.report(losses[epoch - 1], epoch)
            prunes = trial.should_prune()
        if prunes:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, losses[epoch - 1])
        best = min(best, losses[epoch - 1])
        spent.append((used, best))
    return spent


def random_by_epochs(problem: TuningProblem, seed: int) -> Spent:
    """Search at random, every trial to its last epoch."""
    num = RANDOM_FACTOR * NUM_EPOCHS // MAX_EPOCHS
    found = optuna_by_trials(problem, seed, sampler=optuna.samplers.RandomSampler, num=num)
    return [(number * MAX_EPOCHS, best) for number, best in found]


def drawn(trial: optuna.Trial, space: Space) -> Iterator[tuple[str, float]]:
    """Yield the values that Optuna suggests for a space of integers and linear continuous ranges."""
    for each in space.ranges:
        if each.kind == "Integer":
            yield each.name, trial.suggest_int(each.name, int(each.low), int(each.high))
        else:
            yield each.name, trial.suggest_float(each.name, each.low, each.high)


BY_TRIALS = {
    "engine": (engine_by_trials, 1),
    "optuna": (
        partial(optuna_by_trials, sampler=optuna.samplers.TPESampler, num=NUM_TRIALS),
        1,
    ),
    "engine, 2 at a time": (partial(engine_by_trials, num_parallel=2), 1),
    "optuna, 2 at a time": (
        partial(
            optuna_by_trials,
            sampler=optuna.samplers.TPESampler,
            num=NUM_TRIALS,
            num_parallel=2,
        ),
        1,
    ),
    "random": (
        partial(
            optuna_by_trials, sampler=optuna.samplers.RandomSampler, num=RANDOM_FACTOR * NUM_TRIALS
        ),
        RANDOM_FACTOR,
    ),
}
BY_EPOCHS = {
    "engine": (engine_by_epochs, 1),
    "optuna": (optuna_by_epochs, 1),
    "random": (random_by_epochs, RANDOM_FACTOR),
}


if __name__ == "__main__":
    main()
