"""Early stopping of trials: by the median rule, or by Hyperband's comparisons at certain epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from sagemaker_engine.tuning.observations import is_better

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_FINISHED = 3
"""Number of finished trials that the median rule needs. The developer guide does not give a number."""
REDUCTION_FACTOR = 3
MAX_RESOURCE = 20_000
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2

Curve = tuple[float, ...]


def is_below_median(curve: Curve, finished: Sequence[Curve], *, maximize: bool) -> bool:
    """Return whether a running trial should stop, by the rule of TrainingJobEarlyStoppingType Auto.

    It stops if its objective is worse than the median of the finished trials' running averages up to the same epoch.
    Source: "Stop Training Jobs Early", SageMaker developer guide. Worked example: with finished curves (1, 1), (2, 4),
    (3, 5) the averages at epoch 2 are 1, 3, 4. When minimizing, 3.5 stops and 2.5 continues.
    """
    epoch = len(curve)
    if epoch == 0:
        return False
    averages = [fmean(each[:epoch]) for each in finished if len(each) >= epoch]
    return len(averages) >= MIN_FINISHED and is_better(
        median(averages), curve[-1], maximize=maximize
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperband:
    """Asynchronous successive halving in several brackets.

    The number of a trial determines its bracket. Bracket s compares its trials at epoch `min_resource` * 3**s, and
    then each time the epoch has tripled. A trial continues if it is in the best third of all trials, of any bracket,
    that have reached this epoch. No trial stops before `min_resource`, and all stop at `max_resource`. Source: Li et
    al., "Hyperband", JMLR 18 (2018), figure 2, and "A System for Massively Parallel Hyperparameter Tuning", MLSys
    2020, algorithm 1.
    """

    min_resource: int
    max_resource: int

    @property
    def num_brackets(self) -> int:
        """Number of brackets: one plus the number of times that min_resource can be tripled up to max_resource."""
        count, resource = 1, self.min_resource * REDUCTION_FACTOR
        while resource <= self.max_resource:
            count, resource = count + 1, resource * REDUCTION_FACTOR
        return count

    def bracket_of(self, number: int) -> int:
        """Return the index of a trial's bracket; the first bracket is 0.

        The shares of the brackets are those of the Hyperband paper: the earlier a bracket compares its trials, the
        more trials it gets. Worked: three brackets get 9, 5 and 3 of 17 trials on average.
        """
        total = self.num_brackets
        weights = [
            math.ceil(total * REDUCTION_FACTOR ** (total - 1 - s) / (total - s))
            for s in range(total)
        ]
        place = (number / GOLDEN_RATIO) % 1 * sum(weights)
        for bracket, weight in enumerate(weights):
            if place < weight:
                return bracket
            place -= weight
        return total - 1

    def rungs(self, number: int) -> list[int]:
        """Return the epochs at which a trial is compared with the other trials; they depend on its bracket."""
        rung = self.min_resource * REDUCTION_FACTOR ** self.bracket_of(number)
        found = []
        while rung < self.max_resource:
            found.append(rung)
            rung *= REDUCTION_FACTOR
        return found

    def stops(
        self, number: int, curves: Mapping[int, Curve], *, seen: int = 0, maximize: bool
    ) -> bool:
        """Return whether a trial must stop. Each epoch at which trials are compared (`rungs`) is evaluated only once.

        Args:
            number: number of the trial.
            curves: curves of all trials, by number.
            seen: length of the trial's curve at the previous call; `rungs` up to it are skipped.
            maximize: direction of the objective.
        """
        curve = curves[number]
        if len(curve) >= self.max_resource:
            return True
        rivals = list(curves.values())
        return any(
            not _is_promoted(
                curve[rung - 1],
                [each[rung - 1] for each in rivals if len(each) >= rung],
                maximize=maximize,
            )
            for rung in self.rungs(number)
            if seen < rung <= len(curve)
        )


def _is_promoted(value: float, at_rung: Sequence[float], *, maximize: bool) -> bool:
    num_better = sum(is_better(other, value, maximize=maximize) for other in at_rung)
    return num_better < max(1, len(at_rung) // REDUCTION_FACTOR)
