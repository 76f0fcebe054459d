"""How good the engine's searches are: best loss so far, beside Optuna used directly and random search.

    python benchmarks/tuning.py [--seeds 20] [--first-seed 0]

The engine's decisions are called in this process as its tuner calls them, without jobs: `suggest` with the stored
history for a trial's values, `Hyperband.stops` after every epoch. Three problems:

* Branin (2 dimensions) and Hartmann 6, the loss above the known optimum;
* a table of 400 real trainings (tuning_table.py) over four hyperparameters, the validation error above the least.

Bayesian is measured by trials, against Optuna's default sampler; Hyperband by epochs, 27 at most for a trial, against
Optuna's default sampler with its HyperbandPruner. Branin and Hartmann have no epochs, so theirs are made: at epoch e
the loss is still higher by 2 exp(-e / t), with t from 2 to 8 by the point. A trial's objective is its last value.
Medians and quartiles are over seeds. "random / engine" is how many times the engine's budget random search needs until
its median is as low as the engine's; `>` where it was not within its own budget, five times the engine's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import optuna  # noqa: E402

from include.local_engine.tuning.early_stopping import Hyperband  # noqa: E402
from include.local_engine.tuning.observations import Observation, Phase  # noqa: E402
from include.local_engine.tuning.ranges import Space, parse_ranges  # noqa: E402
from include.local_engine.tuning.search import Strategy, suggest  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUM_TRIALS, NUM_EPOCHS, MAX_EPOCHS = 50, 270, 27
RANDOM_FACTOR = 5
TABLE = Path(__file__).with_name("tuning_table.json")
BAND = Hyperband(min_resource=1, max_resource=MAX_EPOCHS)
Spent = list[tuple[int, float]]
"""A search as (budget spent, best loss so far), in order."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A space, and for each point its losses after each epoch; the last is the point's loss."""

    name: str
    space: Space
    curve: Callable[[dict[str, float]], list[float]]

    def losses(self, point: dict[str, str]) -> list[float]:
        """Return the curve of a point as the engine writes it."""
        return self.curve({name: float(text) for name, text in point.items()})


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="Search quality of the engine's tuning.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problems = [branin(), hartmann(), recorded()]
    for title, budget, marks, searches in (
        ("Bayesian, by trials", NUM_TRIALS, (10, 20, 30, 50), BY_TRIALS),
        ("Hyperband, by epochs", NUM_EPOCHS, (54, 108, 189, 270), BY_EPOCHS),
    ):
        print(
            f"\n{title}, seeds {seeds[0]} to {seeds[-1]}: median (quartiles) of the loss above the optimum\n"
        )
        print("| problem | search | " + " | ".join(map(str, marks)) + " | random / engine |")
        print("|---" * (len(marks) + 3) + "|")
        for problem in problems:
            runs = {
                name: grid([search(problem, seed) for seed in seeds], length=budget * factor)
                for name, (search, factor) in searches.items()
            }
            for name, curves in runs.items():
                cells = [spread(curves[:, mark - 1]) for mark in marks]
                ratio = ratio_of(runs, budget) if name == "engine" else ""
                print(f"| {problem.name} | {name} | {' | '.join(cells)} | {ratio} |", flush=True)


def grid(runs: list[Spent], *, length: int) -> np.ndarray:
    """Return best so far after each unit of budget, a row for each run; infinite before the first."""
    rows = np.full((len(runs), length), math.inf)
    for row, spent in zip(rows, runs, strict=True):
        for budget, best in spent:
            row[budget - 1 :] = best
    return rows


def spread(values: np.ndarray) -> str:
    """Return median and quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], method="nearest")
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def ratio_of(runs: dict[str, np.ndarray], budget: int) -> str:
    """Return how many times the engine's budget random search needs for the same median."""
    reached = float(np.median(runs["engine"][:, budget - 1]))
    medians = np.median(runs["random"], axis=0)
    needed = np.flatnonzero(medians <= reached)
    if not len(needed):
        return f"> {len(medians) / budget:.1f}"
    return f"{(needed[0] + 1) / budget:.1f}"


def engine_by_trials(problem: Problem, seed: int) -> Spent:
    """Search by the engine's Bayesian strategy."""
    history: list[Observation] = []
    spent, best = [], math.inf
    for number in range(NUM_TRIALS):
        point = suggest(
            Strategy.BAYESIAN, problem.space, history, maximize=False, seed=seed, number=number
        )
        loss = problem.losses(point)[-1]
        history.append(Observation(point=point, phase=Phase.SUCCEEDED, objective=loss))
        best = min(best, loss)
        spent.append((number + 1, best))
    return spent


def optuna_by_trials(
    problem: Problem, seed: int, *, sampler: Callable[..., optuna.samplers.BaseSampler], num: int
) -> Spent:
    """Search by an Optuna study."""
    study = optuna.create_study(sampler=sampler(seed=seed))
    spent, best = [], math.inf
    for number in range(num):
        trial = study.ask()
        loss = problem.curve(dict(drawn(trial, problem.space)))[-1]
        study.tell(trial, loss)
        best = min(best, loss)
        spent.append((number + 1, best))
    return spent


def engine_by_epochs(problem: Problem, seed: int) -> Spent:
    """Search by the engine's Hyperband strategy, one trial after the other."""
    history: list[Observation] = []
    curves: dict[int, tuple[float, ...]] = {}
    spent, best, used = [], math.inf, 0
    while used < NUM_EPOCHS:
        number = len(history)
        point = suggest(
            Strategy.HYPERBAND, problem.space, history, maximize=False, seed=seed, number=number
        )
        losses = problem.losses(point)
        epoch, stops = 0, False
        while not stops and used < NUM_EPOCHS:
            epoch, used = epoch + 1, used + 1
            curves[number] = tuple(losses[:epoch])
            stops = BAND.stops(number, curves, seen=epoch - 1, maximize=False)
        history.append(
            Observation(
                point=point,
                phase=Phase.SUCCEEDED,
                objective=losses[epoch - 1],
                curve=curves[number],
                stopped=epoch < MAX_EPOCHS,
            )
        )
        best = min(best, losses[epoch - 1])
        spent.append((used, best))
    return spent


def optuna_by_epochs(problem: Problem, seed: int) -> Spent:
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


def random_by_epochs(problem: Problem, seed: int) -> Spent:
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


def branin() -> Problem:
    """Return Branin's function above its minimum 0.397887."""

    def loss(at: dict[str, float]) -> float:
        x, y = at["x0"], at["x1"]
        bowl = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887

    return Problem("Branin", _continuous([(-5, 10), (0, 15)]), partial(_made_curve, loss))


def hartmann() -> Problem:
    """Return the six-dimensional Hartmann function above its minimum -3.32237."""
    scale = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    centre = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    weight = np.array([1, 1.2, 3, 3.2])

    def loss(at: dict[str, float]) -> float:
        x = np.array([at[f"x{index}"] for index in range(6)])
        return 3.32237 - float(weight @ np.exp(-(scale * (x - centre) ** 2).sum(1)))

    return Problem("Hartmann 6", _continuous([(0, 1)] * 6), partial(_made_curve, loss))


def recorded() -> Problem:
    """Return the recorded trainings; a point is the place of each value in its list."""
    table = json.loads(TABLE.read_text())
    least = min(curve[-1] for curve in table["curves"].values())
    names = list(table["choices"])
    ranges = [
        {"Name": name, "MinValue": "0", "MaxValue": str(len(table["choices"][name]) - 1)}
        for name in names
    ]

    def curve(at: dict[str, float]) -> list[float]:
        key = ",".join(str(int(at[name])) for name in names)
        return [value - least for value in table["curves"][key]]

    return Problem("400 trainings", parse_ranges({"IntegerParameterRanges": ranges}), curve)


def _continuous(bounds: list[tuple[float, float]]) -> Space:
    ranges = [
        {"Name": f"x{i}", "MinValue": str(low), "MaxValue": str(high), "ScalingType": "Linear"}
        for i, (low, high) in enumerate(bounds)
    ]
    return parse_ranges({"ContinuousParameterRanges": ranges})


def _made_curve(loss: Callable[[dict[str, float]], float], at: dict[str, float]) -> list[float]:
    value = loss(at)
    slowness = 5 + 3 * math.sin(7 * sum(at.values()))
    excess = [2 * math.exp(-epoch / slowness) for epoch in range(1, MAX_EPOCHS)]
    return [*(value + each for each in excess), value]


if __name__ == "__main__":
    main()
