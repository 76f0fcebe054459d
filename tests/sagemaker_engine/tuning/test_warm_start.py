from __future__ import annotations

from typing import Any

from sagemaker_engine.tuning.observations import (
    Observation,
    TrialPhase,
    inherited_observations,
    moved,
    points_to_repeat,
)
from sagemaker_engine.tuning.plan import Definition
from sagemaker_engine.tuning.ranges import parse_ranges

SPACE = parse_ranges({"IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "9"}]})
DEFINITION = Definition(
    name=None, metric="loss", maximize=False, space=SPACE, static={}, template={}
)


def parent(n: int, objective: float) -> dict[str, Any]:
    return {"HyperParameters": {"n": str(n), "static": "s"}, "Objective": objective}


def own(n: int, objective: float) -> Observation:
    return Observation(point={"n": str(n)}, phase=TrialPhase.SUCCEEDED, objective=objective)


def test_points_inside_the_new_ranges_are_inherited_the_best_first() -> None:
    found = inherited_observations([parent(3, 5.0), parent(12, 0.1), parent(4, 1.0)], DEFINITION)
    assert [(each.point, each.objective) for each in found] == [
        ({"n": "4"}, 1.0),
        ({"n": "3"}, 5.0),
    ]


def test_at_most_three_distinct_points_are_repeated_and_a_third_of_all_jobs() -> None:
    found = inherited_observations([parent(n % 5 + 1, n) for n in range(10)], DEFINITION)
    assert [each["n"] for each in points_to_repeat(found, max_jobs=30)] == ["1", "2", "3"]
    assert len(points_to_repeat(found, max_jobs=4)) == 1


def test_parents_objectives_are_moved_by_what_the_repeated_points_show() -> None:
    inherited = inherited_observations([parent(n, float(n)) for n in (1, 2, 3, 4)], DEFINITION)
    assert moved(inherited, []) == []
    found = moved(inherited, [own(1, 11.0), own(2, 12.0), own(3, 99.0), own(7, 0.0)])
    assert [(each.point["n"], each.objective) for each in found] == [("4", 14.0)]
