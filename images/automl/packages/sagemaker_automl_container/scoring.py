"""Metrics of predictions, under the service's metric names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array = np.ndarray[Any, Any]
MINIMIZED = frozenset({"MSE", "RMSE", "MAE", "LogLoss"})


def score(
    truth: Array, scores: Array, schema: Mapping[str, Any], *, weights: Array | None = None
) -> dict[str, float]:
    """Return all metrics of the problem type by name. AUC is omitted if the rows have only one class.

    `truth` has shape (rows,): values or class indices. `scores` are values, shape (rows,), or probabilities, shape
    (rows, classes). If there are two classes, the last one is the positive class.
    """
    names = list(_functions(schema))
    if schema["classes"] is not None and len(np.unique(truth)) < 2:
        names = [name for name in names if name != "AUC"]
    return {name: value_of(name, truth, scores, schema, weights=weights) for name in names}


def value_of(
    metric: str,
    truth: Array,
    scores: Array,
    schema: Mapping[str, Any],
    *,
    weights: Array | None = None,
) -> float:
    """Return one metric; the arguments are those of `score`."""
    return float(_functions(schema)[metric](truth, scores, weights))


def is_better(value: float, other: float, *, metric: str) -> bool:
    """Return whether `value` is better than `other` for this metric."""
    return gain(value, other, metric=metric) > 0


def gain(value: float, other: float, *, metric: str) -> float:
    """Return by how much `value` is better than `other`; negative if it is worse."""
    return other - value if metric in MINIMIZED else value - other


def _functions(schema: Mapping[str, Any]) -> dict[str, Any]:
    classes = schema["classes"]
    if classes is None:
        return _REGRESSION
    return _BINARY if len(classes) == 2 else _MULTICLASS


def _of_guesses(function: Callable[..., Any], **options: Any) -> Any:
    """Return a function of (truth, probabilities, weights) that evaluates the likeliest class of each row.

    The returned function calls scikit-learn's metric `function` with the arguments `options`.
    """

    def value(truth: Array, scores: Array, weights: Array | None) -> Any:
        return function(truth, scores.argmax(axis=1), sample_weight=weights, **options)

    return value


def _of_values(function: Callable[..., Any]) -> Any:
    """Return a function of (truth, values, weights) that calls scikit-learn's metric `function`."""

    def value(truth: Array, values: Array, weights: Array | None) -> Any:
        return function(truth, values, sample_weight=weights)

    return value


def _rmse(truth: Array, values: Array, weights: Array | None) -> float:
    return math.sqrt(metrics.mean_squared_error(truth, values, sample_weight=weights))


def _auc(truth: Array, scores: Array, weights: Array | None) -> Any:
    return metrics.roc_auc_score(truth, scores[:, 1], sample_weight=weights)


def _log_loss(truth: Array, scores: Array, weights: Array | None) -> Any:
    """Return the mean log loss.

    Probabilities are clipped at 1e-9, because a class that a pipeline was not fitted with has probability 0.
    """
    clipped = np.clip(scores, 1e-9, 1.0)
    chances = clipped / clipped.sum(axis=1, keepdims=True)
    labels = np.arange(scores.shape[1])
    return metrics.log_loss(truth, chances, labels=labels, sample_weight=weights)


def _balanced_accuracy(truth: Array, scores: Array, weights: Array | None) -> Any:
    """Return the mean recall of the classes that occur in `truth`."""
    guesses, present = scores.argmax(axis=1), np.unique(truth)
    options = {"labels": present, "average": None, "sample_weight": weights}
    return np.mean(metrics.recall_score(truth, guesses, **options))


_ONE = {"average": "binary", "zero_division": 0.0}
_ALL = {"average": "macro", "zero_division": 0.0}
_CLASSIFICATION = {
    "Accuracy": _of_guesses(metrics.accuracy_score),
    "BalancedAccuracy": _balanced_accuracy,
    "LogLoss": _log_loss,
}
_BINARY = {
    **_CLASSIFICATION,
    "F1": _of_guesses(metrics.f1_score, **_ONE),
    "Precision": _of_guesses(metrics.precision_score, **_ONE),
    "Recall": _of_guesses(metrics.recall_score, **_ONE),
    "AUC": _auc,
}
_MULTICLASS = {
    **_CLASSIFICATION,
    "F1macro": _of_guesses(metrics.f1_score, **_ALL),
    "PrecisionMacro": _of_guesses(metrics.precision_score, **_ALL),
    "RecallMacro": _of_guesses(metrics.recall_score, **_ALL),
}
_REGRESSION = {
    "MSE": _of_values(metrics.mean_squared_error),
    "RMSE": _rmse,
    "MAE": _of_values(metrics.mean_absolute_error),
    "R2": _of_values(metrics.r2_score),
}
