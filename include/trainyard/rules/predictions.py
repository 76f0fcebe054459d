"""Rules on the predictions of a classifier."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import Facts, Predictions
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator

Matrix = tuple[tuple[int, ...], ...]
_KEPT = 16
"""Number of evaluated matrices to keep, for a restart from an earlier step."""
_COUNTS = "counts of labels against predictions (kind `predictions`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassImbalance(Rule):
    """Labels are unevenly distributed, or a class is mostly mispredicted.

    The rule is evaluated after every `samples` labels. It is violated in either of two cases:

    - The most frequent label occurs more than `threshold_imbalance` times as often as the rarest.
    - More than `threshold_misprediction` of a class's samples were predicted as another class.

    Early predictions are mostly wrong. In the robust profile, violations in the first 500 steps therefore do
    not count, and an issue needs three violations in a row. Source: SageMaker Developer Guide, ClassImbalance.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Predictions,)
    NEEDS = _COUNTS
    ROBUST: ClassVar[Mapping[str, Any]] = {"warm_up": 500, "persistence": 3}
    threshold_imbalance: float = 10.0
    threshold_misprediction: float = 0.7
    samples: int = 500
    argmax: bool = False
    labels_regex: str = ".*labels"
    predictions_regex: str = ".*predictions"

    def watch(self, facts: Facts) -> RuleState[Predictions]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _ClassImbalance(self)


class _Counted(RuleState[Predictions]):
    """Base that adds up confusion matrices. A sum of at least `samples` labels is evaluated, and a new one begins."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._since: list[tuple[int, Matrix]] = []
        self._judged: deque[list[tuple[int, Matrix]]] = deque(maxlen=_KEPT)

    def see(self, record: Predictions) -> Iterator[Judgement]:
        self._since.append((record.step, record.confusion))
        matrix = _added([each for _, each in self._since])
        count = sum(map(sum, matrix))
        if count < self._samples or not count:
            self.why_not = f"{count} labels; needs {self._samples}"
            return
        self._judged.append(self._since)
        self._since = []
        yield from self.judge(matrix)

    def judge(self, matrix: list[list[int]]) -> Iterator[Judgement]:
        raise NotImplementedError

    def roll_back(self, step: int) -> None:
        while self._judged and self._judged[-1][-1][0] > step:
            self._since = self._judged.pop()
        self._since = [each for each in self._since if each[0] <= step]


def _added(matrices: list[Matrix]) -> list[list[int]]:
    size = max(len(matrix) for matrix in matrices)
    total = [[0] * size for _ in range(size)]
    for matrix in matrices:
        for label, row in enumerate(matrix):
            for predicted, count in enumerate(row):
                total[label][predicted] += count
    return total


class _ClassImbalance(_Counted):
    def __init__(self, rule: ClassImbalance) -> None:
        super().__init__(rule.samples)
        self._rule = rule

    def judge(self, matrix: list[list[int]]) -> Iterator[Judgement]:
        rule = self._rule
        counts = [sum(row) for row in matrix]
        ratio = max(counts) / max(1, min(counts))
        yield Judgement(
            is_violated=ratio > rule.threshold_imbalance,
            text=f"the most frequent label occurs {max(counts)} times, the rarest {min(counts)} times",
            numbers={"ratio": ratio},
        )
        for label, count in enumerate(counts):
            if count:
                wrong = 1 - matrix[label][label] / count
                yield Judgement(
                    key=f"class {label}",
                    is_violated=wrong > rule.threshold_misprediction,
                    text=f"{wrong:.0%} of its {count} samples were mispredicted",
                    numbers={"misprediction": wrong},
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion(Rule):
    """A diagonal share of the confusion matrix is below `min_diag`, or another share is above `max_off_diag`.

    confusion[i][j] is the number of samples of class i that were predicted as class j. The shares of class i
    are:

    - The diagonal share is the part of the samples of class i that were recognized:
      confusion[i][i] / sum_j confusion[i][j].
    - The other shares, one for each other class j, are the parts of the samples predicted as class i that
      belong to class j: confusion[j][i] / sum_k confusion[k][i].

    Source: SageMaker Developer Guide, Confusion Rule. The formula of the other shares is the guide's. For the
    diagonal share, the guide divides by the sum of the diagonal, so several classes can never all reach the
    threshold. Here the divisor is the number of the class's samples.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Predictions,)
    NEEDS = _COUNTS
    ON_REQUEST = "the required accuracy is the author's choice"
    category_no: int | None = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: float = 0.9
    max_off_diag: float = 0.1

    def judge(self, record: Predictions) -> Iterator[Judgement]:
        """Yield a result for each class, or for the first `category_no` classes."""
        matrix = _added([record.confusion])
        size = len(matrix) if self.category_no is None else min(self.category_no, len(matrix))
        for each in range(size):
            row, column = sum(matrix[each]), sum(line[each] for line in matrix)
            right = matrix[each][each] / row if row else 1.0
            others = [matrix[label][each] for label in range(size) if label != each]
            wrong = max(others, default=0) / column if column else 0.0
            yield Judgement(
                key=f"class {each}",
                is_violated=right < self.min_diag or wrong > self.max_off_diag,
                text=f"{right:.0%} of its samples were recognized; another class is {wrong:.0%} of its predictions",
                numbers={"diagonal": right, "off_diagonal": wrong},
            )


RULES: tuple[type[Rule], ...] = (
    ClassImbalance,
    Confusion,
)
