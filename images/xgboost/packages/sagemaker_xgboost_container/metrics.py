"""Evaluation metrics that AWS's container has and XGBoost lacks.

scikit-learn computes them on each host's own data.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAXIMIZED = frozenset(
    {
        *("accuracy", "auc", "aucpr", "balanced_accuracy", "f1", "f1_binary", "f1_macro", "map"),
        *("ndcg", "precision", "precision_macro", "precision_micro", "r2", "recall"),
        *("recall_macro", "recall_micro"),
    }
)
CUSTOM = frozenset({"mse", *(MAXIMIZED - {"auc", "aucpr", "map", "ndcg"})})


def split_metrics(wanted: Sequence[str]) -> tuple[list[str], Callable[..., Any] | None]:
    """Return the metrics that XGBoost has, and a function that computes all others (None if there are no others)."""
    custom = [each for each in wanted if each in CUSTOM]
    own = [each for each in wanted if each not in CUSTOM]
    return own, partial(evaluate, custom) if custom else None


def evaluate(names: Sequence[str], predicted: Any, matrix: Any) -> list[tuple[str, float]]:
    """Return (name, value) per metric. The predicted class is the most probable one; a binary prediction is rounded."""
    labels = matrix.get_label()
    classes = predicted.argmax(axis=1) if predicted.ndim > 1 else predicted.round()
    return [(name, _metric(name, labels, predicted, classes)) for name in names]


def _metric(name: str, labels: Any, predicted: Any, classes: Any) -> float:
    from sklearn import metrics

    match name.split("_"):
        case ["mse"]:
            return float(metrics.mean_squared_error(labels, predicted))
        case ["r2"]:
            return float(metrics.r2_score(labels, predicted))
        case ["accuracy"]:
            return float(metrics.accuracy_score(labels, classes))
        case ["balanced", "accuracy"]:
            return float(metrics.balanced_accuracy_score(labels, classes))
        case [score, *average]:
            function = {
                "f1": metrics.f1_score,
                "precision": metrics.precision_score,
                "recall": metrics.recall_score,
            }[score]
            chosen = average[0] if average else "macro" if score == "f1" else "binary"
            return float(function(labels, classes, average=chosen, zero_division=0))
        case _:
            raise AssertionError(name)
