"""Observations of trials for the search algorithms: a search's own, and those inherited from its parents.

A search with a warm start inherits the observations of its parents' trials. IdenticalDataAndAlgorithm uses their
objectives unchanged. TransferLearning allows other data or another algorithm. Its first trials repeat the parents'
best points. The parents' objectives are then shifted by the median difference between new and old objectives at
these points. Both types omit points outside of the new ranges. Warm starts are not recursive: a search does not
inherit the observations that a parent itself inherited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.plan import Definition
    from sagemaker_engine.tuning.ranges import Point

MAX_REPEATED = 3


class TrialPhase(StrEnum):
    """Phase of a trial, as the search uses it. The values are those of `ObjectiveStatus` in the API."""

    PENDING = "Pending"
    SUCCEEDED = "Succeeded"
    """The trial ended with an objective, also if it was stopped early."""
    FAILED = "Failed"
    """The trial ended without an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One trial: its hyperparameter values, its objective (the last value that it logged) and all logged values.

    `curve` has every value of the objective metric in the order of the log, one per epoch. `stopped` is true if the
    search stopped the trial early.
    """

    point: Point
    phase: TrialPhase
    objective: float | None = None
    curve: tuple[float, ...] = ()
    stopped: bool = False


def is_better(value: float, other: float, *, maximize: bool) -> bool:
    """Return whether one objective is better than another."""
    return value > other if maximize else value < other


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
    """Return the parents' points with which a TransferLearning search begins.

    These are the first distinct points of `inherited`. Their number is a third of `max_jobs`, but at least 1
    and at most MAX_REPEATED.
    """
    distinct = list({tuple(sorted(each.point.items())): each.point for each in inherited}.values())
    return distinct[: max(1, min(MAX_REPEATED, max_jobs // 3))]


def moved(inherited: Sequence[Observation], own: Sequence[Observation]) -> list[Observation]:
    """Return the parents' observations with shifted objectives; empty if the shift is not yet known.

    The shift is the median of (new objective - parents' objective) over the points that the new search and a
    parent have both tried. It is known once the new search has an objective at such a point. Observations at
    points that the new search has tried are omitted.
    """
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
