"""Hyperparameters of the algorithm: their types and ranges, checked with the errors of AWS's container.

Source: "XGBoost hyperparameters" in the SageMaker Developer Guide and hyperparameter_validation.py of AWS's container
(June 2026). Values arrive as text. Unknown names are errors.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_xgboost_container.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

INFINITY = math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from `low` to `high`; an open end is not included."""

    low: float = -INFINITY
    high: float = INFINITY
    is_low_open: bool = False
    is_high_open: bool = False

    def __contains__(self, value: float) -> bool:
        """Return whether the number is in the interval."""
        above = value > self.low if self.is_low_open else value >= self.low
        below = value < self.high if self.is_high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        """Return the interval in mathematical notation, such as `(0, 1]`."""
        opening, closing = "(" if self.is_low_open else "[", ")" if self.is_high_open else "]"
        return f"{opening}{self.low:g}, {self.high:g}{closing}"


AT_LEAST_0, AT_LEAST_1, AT_LEAST_2 = Interval(0), Interval(1), Interval(2)
UNIT, FLAG = Interval(0, 1), Interval(0, 1)
SHARE = Interval(0, 1, is_low_open=True)
POSITIVE = Interval(0, is_low_open=True)
TRUTH = ("true", "false")

WHOLE: Mapping[str, Interval] = {
    "num_round": AT_LEAST_1,
    "csv_weights": FLAG,
    "early_stopping_rounds": AT_LEAST_1,
    "verbosity": Interval(0, 3),
    "nthread": AT_LEAST_1,
    "max_depth": AT_LEAST_0,
    "refresh_leaf": FLAG,
    "max_leaves": AT_LEAST_0,
    "max_bin": AT_LEAST_0,
    "one_drop": FLAG,
    "num_class": AT_LEAST_2,
    "num_parallel_tree": AT_LEAST_1,
    "seed": Interval(-(2**31), 2**31 - 1, is_low_open=True, is_high_open=True),
}
REAL: Mapping[str, Interval] = {
    "eta": UNIT,
    "gamma": AT_LEAST_0,
    "min_child_weight": AT_LEAST_0,
    "max_delta_step": AT_LEAST_0,
    "subsample": SHARE,
    "colsample_bytree": SHARE,
    "colsample_bylevel": SHARE,
    "colsample_bynode": SHARE,
    "lambda": AT_LEAST_0,
    "alpha": AT_LEAST_0,
    "sketch_eps": Interval(0, 1, is_low_open=True, is_high_open=True),
    "scale_pos_weight": POSITIVE,
    "rate_drop": UNIT,
    "skip_drop": UNIT,
    "lambda_bias": UNIT,
    "tweedie_variance_power": Interval(1, 2, is_low_open=True, is_high_open=True),
    "base_score": AT_LEAST_0,
    "aft_loss_distribution_scale": AT_LEAST_0,
}
CHOICE: Mapping[str, tuple[str, ...]] = {
    "booster": ("gbtree", "gblinear", "dart"),
    "tree_method": ("auto", "exact", "approx", "hist", "gpu_hist"),
    "dsplit": ("row", "col"),
    "process_type": ("default", "update"),
    "grow_policy": ("depthwise", "lossguide"),
    "predictor": ("auto", "cpu_predictor", "gpu_predictor"),
    "sample_type": ("uniform", "weighted"),
    "normalize_type": ("tree", "forest"),
    "sampling_method": ("uniform", "gradient_based"),
    "aft_loss_distribution": ("normal", "logistic", "extreme"),
    "deterministic_histogram": TRUTH,
    "save_model_on_termination": TRUTH,
    "use_dask_gpu_training": TRUTH,
    "objective": (
        *("binary:hinge", "binary:logistic", "binary:logitraw", "count:poisson"),
        *("multi:softmax", "multi:softprob", "rank:map", "rank:ndcg", "rank:pairwise"),
        *("reg:absoluteerror", "reg:gamma", "reg:linear", "reg:logistic", "reg:pseudohubererror"),
        *("reg:squarederror", "reg:squaredlogerror", "reg:tweedie"),
        *("survival:aft", "survival:cox"),
    ),
}
TEXT = frozenset(
    {
        "eval_metric",
        "updater",
        "monotone_constraints",
        "interaction_constraints",
        "_tuning_objective_metric",
    }
)
ALIASES = {
    "learning_rate": "eta",
    "min_split_loss": "gamma",
    "reg_lambda": "lambda",
    "reg_alpha": "alpha",
}
RENAMED = {"reg:linear": "reg:squarederror"}
"""Objective name of older containers -> XGBoost's current name."""
CROSS_VALIDATION = ("_kfold", "_num_cv_round")
MULTI_CLASS = ("multi:softmax", "multi:softprob")


def read_hyperparameters(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the hyperparameters in XGBoost's types, with aliases replaced by primary names.

    Raises:
        UserError: A hyperparameter is unknown, missing or out of range, or two are incompatible.
    """
    values: dict[str, Any] = {}
    for alias, text in given.items():
        name = ALIASES.get(alias, alias)
        if name.startswith("sagemaker_"):
            continue  # the toolkit's own
        values[name] = _value(name, str(text))
    if "num_round" not in values:
        raise UserError("Missing required hyperparameter: num_round")
    _check_together(values)
    return values


def _value(name: str, text: str) -> Any:
    if name in WHOLE:
        return _number(name, text, WHOLE[name], whole=True)
    if name in REAL:
        return _number(name, text, REAL[name], whole=False)
    if name in CHOICE:
        if text not in CHOICE[name]:
            allowed = ", ".join(CHOICE[name])
            raise UserError(f"Hyperparameter {name}: {text} is not in [{allowed}]")
        return RENAMED.get(text, text)
    if name in CROSS_VALIDATION:
        raise UserError(
            f"Hyperparameter {name}: cross validation is not supported by this engine image; leave it out"
        )
    if name not in TEXT:
        raise UserError(f"Extraneous hyperparameter found: {name}")
    return _list(name, text) if name in {"eval_metric", "updater"} else text


def _number(name: str, text: str, allowed: Interval, *, whole: bool) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise UserError(f"Hyperparameter {name}: could not parse value {text!r}") from error
    if whole and not number.is_integer():
        raise UserError(f"Hyperparameter {name}: could not parse value {text!r}")
    if number not in allowed:
        raise UserError(f"Hyperparameter {name}: value {text} not in range {allowed}")
    return int(number) if whole else number


def _list(name: str, text: str) -> list[str]:
    """Return the items in `text`: a comma-separated list such as `rmse,mae`, or the JSON list that the SDK sends.

    Raises:
        UserError: `text` begins like a JSON list, but is not valid JSON.
    """
    if text.startswith("["):
        try:
            return [str(each) for each in json.loads(text)]
        except ValueError as error:
            raise UserError(f"Hyperparameter {name}: could not parse value {text!r}") from error
    return [each.strip() for each in text.split(",") if each.strip()]


def _check_together(values: Mapping[str, Any]) -> None:
    objective = values.get("objective", "")
    if objective in MULTI_CLASS and "num_class" not in values:
        raise UserError("Require input for parameter 'num_class' for multi-classification")
    if "num_class" in values and objective not in MULTI_CLASS:
        raise UserError(
            "Do not need to setup parameter 'num_class' for learning task other than multi-classification."
        )
    metrics = values.get("eval_metric", [])
    if "auc" in metrics and not objective.startswith(("binary:", "rank:", "multi:")):
        raise UserError("Metric 'auc' can only be applied for classification and ranking problems.")
    if "aft-nloglik" in metrics and objective != "survival:aft":
        raise UserError("Metric 'aft-nloglik' can only be applied for 'survival:aft' objective.")
    on_gpu = [
        values.get("tree_method") == "gpu_hist",
        values.get("use_dask_gpu_training") == "true",
    ]
    if any(on_gpu):
        raise UserError(
            "tree_method gpu_hist and use_dask_gpu_training need a GPU, which this engine image does not have; "
            "use tree_method hist"
        )
