"""Plan of an AutoML job: its request, completed by the analysis of the data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES_FOR_ENSEMBLING = 100 << 20
"""Largest data for which the mode AUTO selects ENSEMBLING, as documented."""
DEFAULT_MAX_CANDIDATES = 10
"""Default number of candidates in mode ENSEMBLING, as documented."""
DEFAULT_MAX_TRIALS = 250
"""Default number of candidates in mode HYPERPARAMETER_TUNING, as documented."""
MIN_CANDIDATES_FOR_ENSEMBLE = 3


class Problem(StrEnum):
    """ProblemType of the API."""

    BINARY = "BinaryClassification"
    MULTICLASS = "MulticlassClassification"
    REGRESSION = "Regression"


class Mode(StrEnum):
    """AutoMLMode of the API."""

    AUTO = "AUTO"
    ENSEMBLING = "ENSEMBLING"
    TUNING = "HYPERPARAMETER_TUNING"


METRICS = {
    Problem.BINARY: ("F1", "Accuracy", "AUC", "BalancedAccuracy", "Precision", "Recall"),
    Problem.MULTICLASS: (
        *("Accuracy", "BalancedAccuracy", "F1macro", "PrecisionMacro", "RecallMacro"),
    ),
    Problem.REGRESSION: ("MSE", "RMSE", "MAE", "R2"),
}
"""Metrics of each problem, the default objective first."""
MINIMIZED = frozenset({"MSE", "RMSE", "MAE"})

TUNING_ALGORITHMS = ("xgboost", "linear-learner", "mlp")
ENSEMBLING_ALGORITHMS = (
    *("lightgbm", "linear-learner", "extra-trees", "randomforest", "mlp", "xgboost"),
)
STAND_INS = {"catboost": "lightgbm", "nn-torch": "mlp", "fastai": "mlp"}
"""Algorithm whose library the engine does not have -> the algorithm that it trains instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Result of the data analysis: type of the problem, and size of the data in bytes."""

    problem: Problem
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLPlan:
    """Settings of an AutoML job after the analysis of its data."""

    problem: Problem
    mode: Mode
    objective: str
    max_candidates: int
    algorithms: tuple[str, ...]

    @property
    def maximize(self) -> bool:
        """True if a higher objective is better."""
        return self.objective not in MINIMIZED

    @property
    def num_base(self) -> int:
        """Number of candidates without the ensemble."""
        return self.max_candidates - self.has_ensemble

    @property
    def has_ensemble(self) -> bool:
        """True if the last candidate is an ensemble of the others."""
        return self.mode is Mode.ENSEMBLING and self.max_candidates >= MIN_CANDIDATES_FOR_ENSEMBLE


def read_plan(request: Mapping[str, Any], analysis: Analysis) -> AutoMLPlan:
    """Return the plan of an accepted request, given the analysis of its data."""
    config = tabular(request)
    criteria = config.get("CompletionCriteria", {})
    mode = Mode(config.get("Mode", Mode.AUTO))
    if mode is Mode.AUTO:
        is_small = analysis.num_bytes <= MAX_BYTES_FOR_ENSEMBLING
        mode = Mode.ENSEMBLING if is_small else Mode.TUNING
    default = DEFAULT_MAX_CANDIDATES if mode is Mode.ENSEMBLING else DEFAULT_MAX_TRIALS
    objective = request.get("AutoMLJobObjective", {}).get("MetricName")
    return AutoMLPlan(
        problem=analysis.problem,
        mode=mode,
        objective=objective or METRICS[analysis.problem][0],
        max_candidates=criteria.get("MaxCandidates", default),
        algorithms=_algorithms(config, mode),
    )


def tabular(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the TabularJobConfig of a request."""
    found: dict[str, Any] = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    return found


def chosen_algorithms(config: Mapping[str, Any]) -> list[str]:
    """Return the algorithm names in AlgorithmsConfig; empty without it."""
    given = config.get("CandidateGenerationConfig", {}).get("AlgorithmsConfig", [])
    return [name for each in given for name in each["AutoMLAlgorithms"]]


def _algorithms(config: Mapping[str, Any], mode: Mode) -> tuple[str, ...]:
    usual = ENSEMBLING_ALGORITHMS if mode is Mode.ENSEMBLING else TUNING_ALGORITHMS
    chosen = [STAND_INS.get(name, name) for name in chosen_algorithms(config)]
    return tuple(dict.fromkeys(chosen)) or usual
