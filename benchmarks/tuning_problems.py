"""Objectives of benchmarks/tuning.py: functions with known minima, and a table of recorded trainings.

Branin, Hartmann 6, Ackley, Rosenbrock and Levy: Surjanovic and Bingham, "Virtual Library of Simulation Experiments:
Test Functions and Datasets", with its usual ranges.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sagemaker_engine.tuning.ranges import Space, parse_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_EPOCHS = 27
TABLE = Path(__file__).with_name("tuning_table.json")


@dataclass(frozen=True, slots=True)
class TuningProblem:
    """A space, and for each point its losses after each epoch; the last is the point's loss."""

    name: str
    space: Space
    curve: Callable[[dict[str, float]], list[float]]

    def losses(self, point: dict[str, str]) -> list[float]:
        """Return the curve of a point as the engine writes it."""
        return self.curve({name: float(text) for name, text in point.items()})


def branin() -> TuningProblem:
    """Return Branin's function above its minimum 0.397887."""

    def loss(at: dict[str, float]) -> float:
        x, y = at["x0"], at["x1"]
        bowl = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887

    return TuningProblem("Branin", _continuous([(-5, 10), (0, 15)]), partial(_made_curve, loss))


def hartmann() -> TuningProblem:
    """Return the six-dimensional Hartmann function above its minimum -3.32237."""
    scale = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    center = 1e-4 * np.array(
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
        return 3.32237 - float(weight @ np.exp(-(scale * (x - center) ** 2).sum(1)))

    return TuningProblem("Hartmann 6", _continuous([(0, 1)] * 6), partial(_made_curve, loss))


def recorded() -> TuningProblem:
    """Return the recorded trainings; a point has the index of each value in its list."""
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

    return TuningProblem("400 trainings", parse_ranges({"IntegerParameterRanges": ranges}), curve)


def ackley() -> TuningProblem:
    """Return Ackley's function in four dimensions: many small dips on the way to one deep one."""

    def loss(at: dict[str, float]) -> float:
        x = np.array(list(at.values()))
        waves = math.exp(float(np.cos(2 * math.pi * x).mean()))
        return 20 - 20 * math.exp(-0.2 * math.sqrt(float((x**2).mean()))) + math.e - waves

    return TuningProblem("Ackley 4", _continuous([(-15, 30)] * 4), partial(_made_curve, loss))


def rosenbrock() -> TuningProblem:
    """Return Rosenbrock's function in three dimensions: a bent valley with a flat bottom."""

    def loss(at: dict[str, float]) -> float:
        x = np.array(list(at.values()))
        return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())

    return TuningProblem(
        "Rosenbrock 3", _continuous([(-2.048, 2.048)] * 3), partial(_made_curve, loss)
    )


def levy() -> TuningProblem:
    """Return Levy's function in four dimensions: many valleys of different depths."""

    def loss(at: dict[str, float]) -> float:
        w = 1 + (np.array(list(at.values())) - 1) / 4
        valleys = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2)).sum()
        last = (w[-1] - 1) ** 2 * (1 + np.sin(2 * math.pi * w[-1]) ** 2)
        return float(np.sin(math.pi * w[0]) ** 2 + valleys + last)

    return TuningProblem("Levy 4", _continuous([(-10, 10)] * 4), partial(_made_curve, loss))


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
