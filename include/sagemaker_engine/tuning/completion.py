"""TuningJobCompletionCriteria: conditions that end a search, evaluated on its results so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.tuning.observations import is_better

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNIFICANT = 0.01
"""Smallest improvement that counts, as a share of the best so far (documentation of BestObjectiveNotImproving)."""
MIN_TO_CONVERGE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """Summary of a sequence of objectives in the order of their arrival.

    Attributes:
        num_not_improving: number of trials since the last improvement of 1 % or more.
        converged_at: index of the objective at which the search converged; None if it did not.
    """

    best: float | None
    num_not_improving: int
    converged_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Conditions that end a search before its limits; None and False disable a condition."""

    target: float | None = None
    max_not_improving: int | None = None
    on_convergence: bool = False

    def are_met(self, progress: SearchProgress, *, maximize: bool) -> bool:
        """Return whether one of the conditions is met, so that the search ends."""
        reached = (
            self.target is not None
            and progress.best is not None
            and not is_better(self.target, progress.best, maximize=maximize)
        )
        stuck = (
            self.max_not_improving is not None
            and progress.num_not_improving >= self.max_not_improving
        )
        return reached or stuck or (self.on_convergence and progress.converged_at is not None)


def progress_of(
    objectives: Sequence[float], *, maximize: bool, num_dimensions: int, num_parallel: int
) -> SearchProgress:
    """Return the progress of a search.

    The service does not document its convergence rule. In the engine a search has converged if the
    best objective did not improve by 1 % over a number of trials. This number is the largest of
    10, twice the number of tuned hyperparameters, and twice the number of parallel trials.
    """
    best: float | None = None
    reference: float | None = None
    converged_at: int | None = None
    num_not_improving = 0
    patience = max(MIN_TO_CONVERGE, 2 * num_dimensions, 2 * num_parallel)
    for index, value in enumerate(objectives):
        if best is None or is_better(value, best, maximize=maximize):
            best = value
        if reference is None or _is_significant(value, reference, maximize=maximize):
            reference, num_not_improving = value, 0
        else:
            num_not_improving += 1
        if converged_at is None and num_not_improving >= patience:
            converged_at = index
    return SearchProgress(best=best, num_not_improving=num_not_improving, converged_at=converged_at)


def _is_significant(value: float, reference: float, *, maximize: bool) -> bool:
    gain = value - reference if maximize else reference - value
    return gain > 0 and gain >= SIGNIFICANT * abs(reference)
