"""Warm start: observations that a search inherits from the trials of its parents.

IdenticalDataAndAlgorithm uses their objectives unchanged. With TransferLearning, data or algorithm differ: the first
trials repeat the parents' best points, and the parents' objectives are then shifted by the median difference at these
points. Both omit points outside of the new ranges. Warm starts are not recursive.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from sagemaker_engine.tuning.observations import Observation, TrialPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.plan import Definition
    from sagemaker_engine.tuning.ranges import Point

MAX_REPEATED = 3


def inherited_observations(
    inherited: Sequence[dict[str, Any]], definition: Definition
) -> list[Observation]:
    """Return the parents' results within the definition's space, the best first."""
    found = []
    for each in inherited:
        point = definition.space.project(each["HyperParameters"])
        if point is not None:
            value = float(each["Objective"])
            found.append(Observation(point=point, phase=TrialPhase.SUCCEEDED, objective=value))
    return sorted(found, key=lambda each: each.objective or 0.0, reverse=definition.maximize)


def points_to_repeat(inherited: Sequence[Observation], *, max_jobs: int) -> list[Point]:
    """Return the parents' points with which a TransferLearning search begins."""
    distinct = list({tuple(sorted(each.point.items())): each.point for each in inherited}.values())
    return distinct[: max(1, min(MAX_REPEATED, max_jobs // 3))]


def moved(inherited: Sequence[Observation], own: Sequence[Observation]) -> list[Observation]:
    """Return the parents' results on the new search's scale; empty until a repeated point has a result."""
    known = {tuple(sorted(each.point.items())): each.objective for each in reversed(inherited)}
    differences = [
        each.objective - before
        for each in own
        if each.objective is not None
        and (before := known.get(tuple(sorted(each.point.items())))) is not None
    ]
    if not differences:
        return []
    shift = median(differences)
    own_points = [each.point for each in own]
    return [
        replace(each, objective=(each.objective or 0.0) + shift)
        for each in inherited
        if each.point not in own_points
    ]
