from __future__ import annotations

import numpy as np
import pytest

from sagemaker_engine.tuning import bayesian
from sagemaker_engine.tuning.observations import Observation, TrialPhase
from sagemaker_engine.tuning.ranges import Space, parse_ranges

LINE = parse_ranges(
    {
        "ContinuousParameterRanges": [
            {"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}
        ]
    }
)


def ended(x: float, loss: float, *, stopped: bool = False) -> Observation:
    return Observation(
        point={"x": repr(x)}, phase=TrialPhase.SUCCEEDED, objective=loss, stopped=stopped
    )


BOWL = [ended(x, (x - 0.6) ** 2) for x in (0.05, 0.3, 0.5, 0.8, 0.95)]


def drawn(
    history: list[Observation], *, space: Space = LINE, maximize: bool = False, seed: int = 0
) -> float:
    return float(bayesian.draw(space, history, maximize=maximize, seed=seed)["x"])


@pytest.mark.parametrize("seed", range(5))
def test_next_point_is_at_the_bottom_of_a_bowl(seed: int) -> None:
    assert drawn(BOWL, seed=seed) == pytest.approx(0.6, abs=0.05)


def test_sign_of_the_objective_follows_the_direction() -> None:
    turned = [ended(float(e.point["x"]), -(e.objective or 0.0)) for e in BOWL]
    assert drawn(turned, maximize=True) == drawn(BOWL)


def test_one_trial_that_diverged_does_not_hide_the_bowl() -> None:
    history = [ended(x, (x - 0.6) ** 2) for x in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)]
    assert drawn([*history, ended(1.0, 1e12)]) == pytest.approx(0.6, abs=0.05)


def test_running_trials_keep_the_next_away() -> None:
    history, running = list(BOWL), list[float]()
    for _ in range(5):
        found = drawn(history)
        assert all(abs(found - other) >= 0.01 for other in running)
        running.append(found)
        history.append(Observation(point={"x": repr(found)}, phase=TrialPhase.PENDING))


@pytest.mark.parametrize("losses", [[2.0], [2.0, 2.0, 2.0], [0.0, 0.0, 1.0]])
def test_history_that_says_nothing_is_survived(losses: list[float]) -> None:
    found = drawn([ended(0.2 * index, loss) for index, loss in enumerate(losses)])
    assert 0 <= found <= 1


def test_one_value_is_kept_and_the_category_taken_that_was_not_tried() -> None:
    space = parse_ranges(
        {
            "ContinuousParameterRanges": [
                {"Name": "x", "MinValue": "0.5", "MaxValue": "0.5", "ScalingType": "Linear"}
            ],
            "CategoricalParameterRanges": [{"Name": "c", "Values": list("abcd")}],
        }
    )
    history = [
        Observation(point={"x": "0.5", "c": c}, phase=TrialPhase.SUCCEEDED, objective=loss)
        for c, loss in (("a", 3.0), ("b", 1.0), ("c", 2.0))
    ]
    found = bayesian.draw(space, history, maximize=False, seed=0)
    assert found == {"x": "0.5", "c": "d"}


def test_losses_lose_their_outliers_as_documented() -> None:
    found = bayesian.without_outliers(np.array([1.0, 2.0, 3.0, 1e6]))
    assert found[:3] == pytest.approx([-1.20, -0.48, 0.16], abs=0.005)
    assert found.mean() == pytest.approx(0)
    assert found.std() == pytest.approx(1)


def test_long_history_is_thinned_to_its_best_and_a_spread() -> None:
    losses = np.random.default_rng(0).permutation(1000).astype(float)
    kept = sorted(losses[bayesian.thinned(losses, 200)])
    assert kept[:100] == list(range(100))
    assert len(set(kept)) == 200
    assert max(np.diff(kept)) <= 10
    assert kept[-1] == 999


def test_short_history_is_kept_in_its_order() -> None:
    assert bayesian.thinned(np.array([3.0, 1.0, 2.0]), 200) == [0, 1, 2]


def test_history_as_long_as_the_quota_is_searched() -> None:
    places = np.random.default_rng(0).random(750).tolist()
    found = drawn([ended(x, (x - 0.6) ** 2) for x in places])
    assert found == pytest.approx(0.6, abs=0.05)
    assert repr(found) not in map(repr, places)
