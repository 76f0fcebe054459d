"""Metrics that AWS predefines for its built-in XGBoost, so that a job needs no MetricDefinitions for them."""

from __future__ import annotations

NAMES = (
    *("accuracy", "aft-nloglik", "auc", "aucpr", "balanced_accuracy", "cox-nloglik", "error", "f1"),
    *("f1_binary", "f1_macro", "gamma-deviance", "gamma-nloglik", "interval-regression-accuracy"),
    *(
        "logloss",
        "mae",
        "map",
        "mape",
        "merror",
        "mlogloss",
        "mphe",
        "mse",
        "ndcg",
        "poisson-nloglik",
    ),
    *("precision", "precision_macro", "precision_micro", "r2", "recall", "recall_macro"),
    *("recall_micro", "rmse", "rmsle", "tweedie-nloglik"),
)
"""Source: "Tune an XGBoost model" in the Developer Guide, November 2026."""
NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"


REPOSITORY = "/sagemaker-xgboost:"


def implied_metrics(image_uri: str) -> frozenset[str]:
    """Return the metrics that can be a tuning objective without a definition; empty unless the image is XGBoost's."""
    if REPOSITORY not in f"/{image_uri}:":
        return frozenset()
    return frozenset(each["Name"] for each in definitions())


def definitions() -> list[dict[str, str]]:
    """Return MetricDefinitions as DescribeTrainingJob returns them.

    Example: the metric `validation:rmse` is read from log lines with `#011validation-rmse:`; #011 is an escaped tab.
    """
    return [
        {
            "Name": f"{data}:{name}",
            "Regex": rf".*\[[0-9]+\].*#011{data}-{name}:{NUMBER}.*",
        }
        for data in ("train", "validation")
        for name in NAMES
    ]
