"""Rules of CreateHyperParameterTuningJob that the service model cannot express, in the order of their evaluation.

Messages are the service's own if its users have reported them; the others imitate its wording.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.instance_storage import storage_problems
from sagemaker_engine.images.xgboost_metrics import implied_metrics
from sagemaker_engine.tuning.early_stopping import MAX_RESOURCE
from sagemaker_engine.tuning.plan import (
    MAX_TRAINING_JOBS,
    OBJECTIVE_KEY,
    read_definitions,
    read_hyperband,
)
from sagemaker_engine.tuning.ranges import RangeError, RangeKind
from sagemaker_engine.wire.errors import ServiceError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.tuning.plan import Definition

Request = dict[str, Any]
Definitions = tuple["Definition", ...]

MAX_RANGES = 30
MAX_HYPERPARAMETERS = 100
MAX_PARALLEL_JOBS = 100


def check_tuning_request(request: Request) -> None:
    """Check the rules that the service model cannot express.

    Raises:
        ValidationError: A rule is violated; the message is about the first such rule.
        ServiceError: ResourceLimitExceeded, for more trials than the service allows.
    """
    for rule in _SHAPE_RULES:
        for problem in rule(request):
            raise ValidationError(problem)
    try:
        definitions = read_definitions(request)
    except RangeError as error:
        raise ValidationError(str(error)) from error
    for check in _RULES:
        for problem in check(request, definitions):
            raise ValidationError(problem)
    _check_quotas(_limits(request))


def _check_quotas(limits: Request) -> None:
    for key, quota, noun in (
        (
            "MaxNumberOfTrainingJobs",
            MAX_TRAINING_JOBS,
            "training jobs per hyperparameter tuning job",
        ),
        (
            "MaxParallelTrainingJobs",
            MAX_PARALLEL_JOBS,
            "parallel training jobs per hyperparameter tuning job",
        ),
    ):
        if limits.get(key, 0) > quota:
            raise ServiceError(
                "ResourceLimitExceeded",
                f"The account-level service limit 'Maximum number of {noun}' is {quota}, with a "
                f"request of {limits[key]}.",
            )


def _one_or_several(request: Request) -> Iterator[str]:
    given = [key for key in ("TrainingJobDefinition", "TrainingJobDefinitions") if key in request]
    if len(given) != 1:
        yield (
            "You must specify either TrainingJobDefinition or TrainingJobDefinitions, and not both; "
            f"got {' and '.join(given) or 'neither'}."
        )


def _one_definition(request: Request) -> Iterator[str]:
    if "TrainingJobDefinition" not in request:
        return
    config, definition = _config(request), request["TrainingJobDefinition"]
    if "HyperParameterTuningJobObjective" not in config:
        yield (
            "HyperParameterTuningJobObjective in HyperParameterTuningJobConfig is required with "
            "TrainingJobDefinition."
        )
    for key in ("TuningObjective", "HyperParameterRanges"):
        if key in definition:
            yield (
                f"{key} can only be given in TrainingJobDefinitions; with TrainingJobDefinition give "
                "it in HyperParameterTuningJobConfig."
            )


def _several_definitions(request: Request) -> Iterator[str]:
    definitions = request.get("TrainingJobDefinitions")
    if definitions is None:
        return
    config = _config(request)
    for key in ("HyperParameterTuningJobObjective", "ParameterRanges"):
        if key in config:
            yield (
                f"{key} in HyperParameterTuningJobConfig cannot be given with "
                "TrainingJobDefinitions; each definition has its own."
            )
    for key in ("DefinitionName", "TuningObjective", "HyperParameterRanges"):
        missing = [place for place, each in enumerate(definitions, start=1) if key not in each]
        if missing:
            yield f"{key} is required in each of TrainingJobDefinitions; definition {missing[0]} has none."
    names = [each.get("DefinitionName") for each in definitions]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        yield f"DefinitionName must be unique in TrainingJobDefinitions; got {twice[0]} more than once."
    types = {each["TuningObjective"]["Type"] for each in definitions if "TuningObjective" in each}
    if len(types) > 1:
        yield "The Type of TuningObjective must be the same in all TrainingJobDefinitions."


def _resources(request: Request) -> Iterator[str]:
    for each in _templates(request):
        given = [k for k in ("ResourceConfig", "HyperParameterTuningResourceConfig") if k in each]
        if len(given) != 1:
            yield (
                "You must specify either ResourceConfig or HyperParameterTuningResourceConfig in a "
                f"training job definition, and not both; got {' and '.join(given) or 'neither'}."
            )
        for member in ("ResourceConfig", "HyperParameterTuningResourceConfig"):
            yield from storage_problems(each.get(member, {}))
        tuning = each.get("HyperParameterTuningResourceConfig", {})
        single = [k for k in ("InstanceType", "InstanceCount", "VolumeSizeInGB") if k in tuning]
        if "InstanceConfigs" in tuning and single:
            yield (
                "InstanceConfigs in HyperParameterTuningResourceConfig is mutually exclusive with "
                f"InstanceType, InstanceCount and VolumeSizeInGB; got InstanceConfigs and {single[0]}."
            )


def _auto_parameters(request: Request) -> Iterator[str]:
    places = [_config(request).get("ParameterRanges", {})]
    places += [each.get("HyperParameterRanges", {}) for each in _templates(request)]
    if "Autotune" not in request and any(each.get("AutoParameters") for each in places):
        yield "AutoParameters can only be given when Autotune is enabled."


def _objectives(_request: Request, definitions: Definitions) -> Iterator[str]:
    for each in definitions:
        algorithm = each.template["AlgorithmSpecification"]
        names = {metric["Name"] for metric in algorithm.get("MetricDefinitions", [])}
        names |= implied_metrics(algorithm.get("TrainingImage", ""))
        if each.metric not in names and "AlgorithmName" not in algorithm:
            yield (
                "A metric is required for this hyperparameter tuning job objective. Provide a metric "
                "in the metric definitions."
            )


def _names(_request: Request, definitions: Definitions) -> Iterator[str]:
    for each in definitions:
        names = [one.name for one in each.space.ranges]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield f"Hyperparameter names must be unique; {twice[0]} has more than one range."
        both = sorted(set(names) & set(each.static))
        if both:
            yield (
                f"Hyperparameter {both[0]} cannot be both static and tunable; give it either a range "
                "or a value in StaticHyperParameters."
            )
        if OBJECTIVE_KEY in {*names, *each.static}:
            yield f"The hyperparameter name {OBJECTIVE_KEY} is reserved."
        if len(names) > MAX_RANGES:
            yield (
                f"The total number of tunable hyperparameters [{len(names)}] must be less than or "
                f"equal to {MAX_RANGES}."
            )
        total = len(names) + len(each.static) + 1
        if total > MAX_HYPERPARAMETERS:
            yield (
                f"The total number of static and tunable hyperparameters [{total}, with "
                f"{OBJECTIVE_KEY}] must be less than or equal to {MAX_HYPERPARAMETERS}."
            )


def _values(_request: Request, definitions: Definitions) -> Iterator[str]:
    for each in definitions:
        for one in each.space.ranges:
            if one.kind is RangeKind.CATEGORICAL and len(set(one.values)) != len(one.values):
                yield f"Values of categorical hyperparameter {one.name} must be unique."


def _grid(request: Request, definitions: Definitions) -> Iterator[str]:
    config = _config(request)
    if config["Strategy"] != "Grid":
        return
    for each in definitions:
        other = [one.name for one in each.space.ranges if one.kind is not RangeKind.CATEGORICAL]
        if other or not each.space.ranges:
            yield (
                "Only categorical parameters are supported when using the Grid strategy; "
                f"got {', '.join(other) or 'no parameter at all'}."
            )
            return
    total = sum(int(each.space.num_points) for each in definitions)
    limit = _limits(request).get("MaxNumberOfTrainingJobs", total)
    if limit != total:
        yield (
            f"MaxNumberOfTrainingJobs [{limit}] must be equal to the total number of distinct "
            f"categorical combinations [{total}] when using the Grid strategy, or be left out."
        )


def _hyperband(request: Request, definitions: Definitions) -> Iterator[str]:
    config = _config(request)
    given = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig")
    if config["Strategy"] != "Hyperband":
        if given is not None:
            yield (
                "HyperbandStrategyConfig can only be given when Strategy is Hyperband; got "
                f"{config['Strategy']}."
            )
        return
    if config.get("TrainingJobEarlyStoppingType") == "Auto":
        yield (
            "TrainingJobEarlyStoppingType must be OFF when using the Hyperband strategy, which has "
            "its own internal early stopping mechanism."
        )
    hyperband = read_hyperband(config, definitions)
    if hyperband is None:
        yield (
            "MaxResource parameter is not provided and could not be inferred from provided static "
            "hyperparameters of TrainingJobDefinition."
        )
        return
    if hyperband.max_resource > MAX_RESOURCE:
        yield (
            f"MaxResource [{hyperband.max_resource}] must be less than or equal to {MAX_RESOURCE}."
        )
    if hyperband.min_resource > hyperband.max_resource:
        yield (
            f"MinResource [{hyperband.min_resource}] must be less than or equal to MaxResource "
            f"[{hyperband.max_resource}]."
        )


def _jobs(request: Request, definitions: Definitions) -> Iterator[str]:
    config, limits = _config(request), _limits(request)
    most = limits.get("MaxNumberOfTrainingJobs")
    if most is None:
        ends = {"MaxRuntimeInSeconds" in limits, bool(config.get("TuningJobCompletionCriteria"))}
        if True not in ends and "Autotune" not in request and config["Strategy"] != "Grid":
            yield (
                "MaxNumberOfTrainingJobs is required unless MaxRuntimeInSeconds or "
                "TuningJobCompletionCriteria ends the hyperparameter tuning job."
            )
        return
    if limits["MaxParallelTrainingJobs"] > most:
        yield (
            f"MaxParallelTrainingJobs [{limits['MaxParallelTrainingJobs']}] must be less than or equal "
            f"to MaxNumberOfTrainingJobs [{most}]."
        )
    combinations = math.fsum(each.space.num_points for each in definitions)
    if combinations < most:
        yield (
            "You don't have enough combinations of hyperparameter ranges. The total number of "
            f"hyperparameter combinations for the provided ranges [{combinations}] must be equal or "
            f"greater than the value of MaxNumberOfJobs, [{most}]. Provide additional ranges."
        )


def _config(request: Request) -> Request:
    config: Request = request["HyperParameterTuningJobConfig"]
    return config


def _limits(request: Request) -> Request:
    limits: Request = _config(request)["ResourceLimits"]
    return limits


def _templates(request: Request) -> list[Request]:
    if "TrainingJobDefinition" in request:
        return [request["TrainingJobDefinition"]]
    return list(request["TrainingJobDefinitions"])


_SHAPE_RULES: tuple[Callable[[Request], Iterator[str]], ...] = (
    _one_or_several,
    _one_definition,
    _several_definitions,
    _resources,
    _auto_parameters,
)
_RULES: tuple[Callable[[Request, Definitions], Iterator[str]], ...] = (
    _objectives,
    _names,
    _values,
    _hyperband,
    _grid,
    _jobs,
)
