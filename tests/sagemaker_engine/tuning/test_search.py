from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.tuning.observations import Observation, TrialPhase
from sagemaker_engine.tuning.ranges import Space, parse_ranges
from sagemaker_engine.tuning.search import TuningStrategy, suggest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.tuning.ranges import Point

DRAWING = [TuningStrategy.RANDOM, TuningStrategy.BAYESIAN, TuningStrategy.HYPERBAND]


def continuous(low: str, high: str, scaling: str = "Linear", name: str = "x") -> dict[str, str]:
    return {"Name": name, "MinValue": low, "MaxValue": high, "ScalingType": scaling}


MIXED = parse_ranges(
    {
        "ContinuousParameterRanges": [
            continuous("0.001", "1", "Logarithmic", "lr"),
            continuous("0.5", "0.999", "ReverseLogarithmic", "momentum"),
        ],
        "IntegerParameterRanges": [{"Name": "layers", "MinValue": "1", "MaxValue": "64"}],
        "CategoricalParameterRanges": [{"Name": "optimizer", "Values": ["sgd", "adam"]}],
    }
)


def run(
    strategy: TuningStrategy,
    space: Space,
    loss: Callable[[Point], float | None],
    *,
    num: int,
    seed: int = 0,
    maximize: bool = False,
) -> list[Observation]:
    """Search one trial after the other; a loss of None is a trial that failed."""
    history: list[Observation] = []
    for number in range(num):
        point = suggest(strategy, space, history, maximize=maximize, seed=seed, number=number)
        value = loss(point)
        phase = TrialPhase.FAILED if value is None else TrialPhase.SUCCEEDED
        history.append(Observation(point=point, phase=phase, objective=value))
    return history


@pytest.mark.parametrize("strategy", DRAWING)
def test_same_seed_and_history_give_the_same_points(strategy: TuningStrategy) -> None:
    def loss(point: Point) -> float:
        return float(point["lr"]) + int(point["layers"])

    first = run(strategy, MIXED, loss, num=13, seed=7)
    assert first == run(strategy, MIXED, loss, num=13, seed=7)
    assert first != run(strategy, MIXED, loss, num=13, seed=8)


@pytest.mark.parametrize("strategy", DRAWING)
def test_points_lie_in_their_ranges(strategy: TuningStrategy) -> None:
    for seen in run(strategy, MIXED, lambda point: float(point["lr"]), num=14):
        assert MIXED.project(seen.point) == seen.point


def draws(scaling: str, low: str, high: str) -> list[float]:
    space = parse_ranges({"ContinuousParameterRanges": [continuous(low, high, scaling)]})
    seen = run(TuningStrategy.RANDOM, space, lambda _: 0.0, num=60)
    return [float(each.point["x"]) for each in seen]


def test_linear_draws_are_spread_evenly() -> None:
    assert 0.3 < sum(x < 0.5 for x in draws("Linear", "0", "1")) / 60 < 0.7


def test_logarithmic_draws_are_spread_evenly_over_the_orders_of_magnitude() -> None:
    found = draws("Logarithmic", "0.0001", "1")
    assert 0.3 < sum(x < 0.01 for x in found) / 60 < 0.7


def test_reverse_logarithmic_draws_crowd_at_one() -> None:
    found = draws("ReverseLogarithmic", "0", "0.9999")
    assert 0.3 < sum(x > 0.99 for x in found) / 60 < 0.7


def test_grid_visits_every_point_once() -> None:
    space = parse_ranges(
        {
            "CategoricalParameterRanges": [
                {"Name": "a", "Values": ["1", "2", "3"]},
                {"Name": "b", "Values": ["x", "y"]},
            ]
        }
    )
    seen = run(TuningStrategy.GRID, space, lambda _: 0.0, num=6)
    assert {(each.point["a"], each.point["b"]) for each in seen} == {
        (a, b) for a in "123" for b in "xy"
    }


@pytest.mark.parametrize("strategy", DRAWING)
def test_no_point_of_a_small_space_is_tried_twice(strategy: TuningStrategy) -> None:
    space = parse_ranges(
        {"IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "12"}]}
    )
    seen = run(strategy, space, lambda point: float(point["n"]), num=12)
    assert sorted(int(each.point["n"]) for each in seen) == list(range(1, 13))


@pytest.mark.parametrize("maximize", [False, True], ids=["minimize", "maximize"])
def test_bayesian_closes_in_on_the_optimum(maximize: bool) -> None:
    space = parse_ranges(
        {
            "ContinuousParameterRanges": [
                continuous("0", "1", name="x"),
                continuous("0", "1", name="y"),
            ]
        }
    )
    sign = -1 if maximize else 1

    def loss(point: Point) -> float:
        return sign * ((float(point["x"]) - 0.7) ** 2 + (float(point["y"]) - 0.2) ** 2)

    seen = run(TuningStrategy.BAYESIAN, space, loss, num=40, maximize=maximize)
    assert min(abs(each.objective or 0.0) for each in seen) < 1e-5
    learned = sorted(abs(each.objective or 0.0) for each in seen[10:])
    assert learned[len(learned) // 2] < 0.01


def test_parallel_trials_keep_apart() -> None:
    space = parse_ranges({"ContinuousParameterRanges": [continuous("0", "1")]})
    history = run(
        TuningStrategy.BAYESIAN, space, lambda point: (float(point["x"]) - 0.5) ** 2, num=12
    )
    for number in range(12, 18):
        point = suggest(
            TuningStrategy.BAYESIAN,
            space,
            history,
            maximize=False,
            seed=0,
            number=number,
            num_start=3,
        )
        history.append(Observation(point=point, phase=TrialPhase.PENDING))
    running = sorted(float(each.point["x"]) for each in history[12:])
    assert min(b - a for a, b in itertools.pairwise(running)) > 0.0099


def test_failed_trials_are_survived_and_not_repeated() -> None:
    space = parse_ranges(
        {"CategoricalParameterRanges": [{"Name": "c", "Values": list("abcdefgh")}]}
    )
    seen = run(
        TuningStrategy.BAYESIAN,
        space,
        lambda p: None if p["c"] in "aceg" else float(ord(p["c"])),
        num=8,
    )
    assert sorted(each.point["c"] for each in seen) == list("abcdefgh")


def test_stopped_trials_teach_hyperband() -> None:
    space = parse_ranges({"ContinuousParameterRanges": [continuous("0", "1")]})
    history: list[Observation] = []
    for number in range(20):
        point = suggest(
            TuningStrategy.HYPERBAND, space, history, maximize=False, seed=1, number=number
        )
        value = float(point["x"])
        members: dict[str, Any] = {"objective": value, "stopped": value > 0.3}
        history.append(
            Observation(
                point=point, phase=TrialPhase.SUCCEEDED, curve=(value + 1, value), **members
            )
        )
    late = [float(each.point["x"]) for each in history[10:]]
    early = [float(each.point["x"]) for each in history[:10]]
    assert sum(late) / 10 < sum(early) / 10


def test_package_does_not_import_optuna_before_the_first_suggestion() -> None:
    program = (
        "import sys; import sagemaker_engine.application; "
        "assert not {'optuna', 'numpy', 'torch'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
