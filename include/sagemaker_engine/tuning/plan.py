"""Plan of a search, read from a CreateHyperParameterTuningJob request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.tuning.completion import Criteria
from sagemaker_engine.tuning.early_stopping import Hyperband
from sagemaker_engine.tuning.ranges import Space, parse_ranges
from sagemaker_engine.tuning.search import TuningStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

OBJECTIVE_KEY = "_tuning_objective_metric"
"""Hyperparameter with the name of the objective metric, for the training job."""
EPOCH_KEYS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters from which Hyperband infers MaxResource, in the documentation's order."""
MAX_TRAINING_JOBS = 750
"""The service's quota of trials, which limits a search without other limits."""
AUTOTUNE_MAX_JOBS = 20
"""Number of trials with Autotune if the request sets no limit."""
_FRACTION_CEILING = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One training job definition of the search.

    `template` is the unchanged definition from the request. `static` has the hyperparameters that are not tuned.
    """

    name: str | None
    metric: str
    maximize: bool
    space: Space
    static: dict[str, str]
    template: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """Plan of a search: strategy, definitions, limits and criteria."""

    strategy: TuningStrategy
    definitions: tuple[Definition, ...]
    max_jobs: int
    max_parallel: int
    max_runtime_s: float
    stops_early: bool
    hyperband: Hyperband | None
    criteria: Criteria

    @property
    def maximize(self) -> bool:
        """True if a higher objective is better. The direction is the same for all definitions."""
        return self.definitions[0].maximize

    @property
    def num_dimensions(self) -> int:
        """Number of tuned hyperparameters of the largest definition."""
        return max(len(each.space.ranges) for each in self.definitions)


def read_plan(request: Mapping[str, Any]) -> TuningPlan:
    """Return the plan of an accepted request.

    Raises:
        RangeError: A range cannot be searched. CreateHyperParameterTuningJob rejects such a request.
    """
    config = request["HyperParameterTuningJobConfig"]
    strategy = TuningStrategy(config["Strategy"])
    definitions = read_definitions(request)
    limits = config["ResourceLimits"]
    criteria = config.get("TuningJobCompletionCriteria", {})
    return TuningPlan(
        strategy=strategy,
        definitions=definitions,
        max_jobs=_max_jobs(request, strategy, definitions),
        max_parallel=limits["MaxParallelTrainingJobs"],
        max_runtime_s=limits.get("MaxRuntimeInSeconds", math.inf),
        stops_early=config.get("TrainingJobEarlyStoppingType", "Off") == "Auto",
        hyperband=read_hyperband(config, definitions)
        if strategy is TuningStrategy.HYPERBAND
        else None,
        criteria=Criteria(
            target=criteria.get("TargetObjectiveMetricValue"),
            max_not_improving=criteria.get("BestObjectiveNotImproving", {}).get(
                "MaxNumberOfTrainingJobsNotImproving"
            ),
            on_convergence=criteria.get("ConvergenceDetected", {}).get("CompleteOnConvergence")
            == "Enabled",
        ),
    )


def read_definitions(request: Mapping[str, Any]) -> tuple[Definition, ...]:
    """Return the training job definitions of a request, which has one or several.

    Raises:
        RangeError: A range cannot be searched.
    """
    config = request["HyperParameterTuningJobConfig"]
    if "TrainingJobDefinitions" in request:
        return tuple(
            _definition(each, each["TuningObjective"], each.get("HyperParameterRanges", {}))
            for each in request["TrainingJobDefinitions"]
        )
    objective = config["HyperParameterTuningJobObjective"]
    ranges = config.get("ParameterRanges", {})
    return (_definition(request["TrainingJobDefinition"], objective, ranges),)


def read_hyperband(
    config: Mapping[str, Any], definitions: tuple[Definition, ...]
) -> Hyperband | None:
    """Return the settings of Hyperband: the smallest and the largest resource of a training.

    If the request has MaxResource, it is the largest resource. Otherwise, the number of epochs is read from
    each definition's static hyperparameters (EPOCH_KEYS):

    - If every definition has such a number, the largest of these numbers is the largest resource.
    - If a definition has no such number, the result is None.
    """
    given = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig", {})
    highest = given.get("MaxResource")
    if highest is None:
        inferred = [_epochs(each.static) for each in definitions]
        if None in inferred:
            return None
        highest = max(each for each in inferred if each is not None)
    return Hyperband(min_resource=given.get("MinResource", 1), max_resource=highest)


def with_chosen_ranges(ranges: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Convert AutoParameters to ranges or fixed values; return (ParameterRanges, fixed values by name).

    An AutoParameter becomes a range if its ValueHint is a positive number; otherwise the hint is its fixed
    value.

    The service does not document the ends of the range. The engine uses:

    - for an integer hint: a quarter of the hint to four times the hint
    - for another hint below 1: a tenth of the hint to ten times the hint, but at most 0.99
    - for any other hint: a tenth of the hint to ten times the hint
    """
    chosen: dict[str, Any] = {key: list(value) for key, value in ranges.items()}
    fixed = {}
    for auto in chosen.pop("AutoParameters", []):
        kind, found = _chosen_range(auto["Name"], auto["ValueHint"])
        if found is None:
            fixed[auto["Name"]] = auto["ValueHint"]
        else:
            chosen.setdefault(kind, []).append(found)
    return chosen, fixed


def _chosen_range(name: str, hint: str) -> tuple[str, dict[str, str] | None]:
    try:
        number = float(hint)
    except ValueError:
        return "", None
    if not (math.isfinite(number) and number > 0):
        return "", None
    if hint.strip().lstrip("+").isdigit():
        low, high = max(1, int(hint) // 4), int(hint) * 4
        kind = "IntegerParameterRanges"
        return kind, {"Name": name, "MinValue": str(low), "MaxValue": str(high)}
    ceiling = _FRACTION_CEILING if number < 1 else math.inf
    low_high = (number / 10, max(number, min(number * 10, ceiling)))
    kind = "ContinuousParameterRanges"
    return kind, {"Name": name, "MinValue": repr(low_high[0]), "MaxValue": repr(low_high[1])}


def _definition(
    template: dict[str, Any], objective: Mapping[str, str], ranges: Mapping[str, Any]
) -> Definition:
    chosen, fixed = with_chosen_ranges(ranges)
    return Definition(
        name=template.get("DefinitionName"),
        metric=objective["MetricName"],
        maximize=objective["Type"] == "Maximize",
        space=parse_ranges(chosen),
        static={**template.get("StaticHyperParameters", {}), **fixed},
        template=template,
    )


def _max_jobs(
    request: Mapping[str, Any], strategy: TuningStrategy, definitions: tuple[Definition, ...]
) -> int:
    limits = request["HyperParameterTuningJobConfig"]["ResourceLimits"]
    if strategy is TuningStrategy.GRID:
        return int(sum(each.space.num_points for each in definitions))
    default = AUTOTUNE_MAX_JOBS if "Autotune" in request else MAX_TRAINING_JOBS
    return int(limits.get("MaxNumberOfTrainingJobs", default))


def _epochs(static: Mapping[str, str]) -> int | None:
    for key in EPOCH_KEYS:
        text = static.get(key, "").strip('"')  # The SDK writes its values as JSON.
        if text.isdigit() and int(text) > 0:
            return int(text)
    return None
