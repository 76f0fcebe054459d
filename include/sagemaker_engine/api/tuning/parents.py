"""Warm start at Create: checks of a request's parents, and the results of their trials.

Source of the rules: "Run a Warm Start Hyperparameter Tuning Job", SageMaker developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.searches.tables import UnknownSearchError
from sagemaker_engine.tuning import results
from sagemaker_engine.tuning.plan import MAX_TRAINING_JOBS, read_definitions, read_plan
from sagemaker_engine.tuning.ranges import RangeKind
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sagemaker_engine.tuning.plan import Definition
    from sagemaker_engine.tuning.tables import TuningRow, TuningTables

Request = dict[str, Any]
MAX_CHANGES = 10


def check_parents(tables: TuningTables, request: Request, *, region: str) -> list[TuningRow]:
    """Return the parent tuning jobs of a request; empty without WarmStartConfig.

    Raises:
        ValidationError: A parent does not exist, has not ended, or does not match the request.
    """
    config = request.get("WarmStartConfig")
    if config is None:
        return []
    names = [each.get("HyperParameterTuningJobName", "") for each in config[_PARENTS]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValidationError(
            f"Parent tuning jobs must be unique; {twice[0]} is given more than once."
        )
    parents = [_parent(tables, name, region) for name in names]
    for parent in parents:
        for problem in _misfits(request, parent):
            raise ValidationError(problem)
    _check_total(tables, request, parents)
    return parents


def inherit(tables: TuningTables, parents: list[TuningRow]) -> list[dict[str, Any]]:
    """Return a record of each trial of the parents that has an objective.

    A record has HyperParameters, Objective and Summary. Trials that a parent itself inherited are not included.
    """
    inherited = []
    for parent in parents:
        plan = read_plan(parent.request)
        for trial in tables.jobs(parent.arn):
            objective = None if trial.result is None else results.objective_of(trial.result)
            if trial.result is None or objective is None:
                continue
            shown = {k: v for k, v in trial.result.items() if k != results.CURVE}
            summary = results.summary(trial, shown, plan)
            inherited.append(
                {
                    "HyperParameters": {**plan.definitions[trial.definition].static, **trial.point},
                    "Objective": objective,
                    "Summary": {**summary, "TuningJobName": parent.name},
                }
            )
    return inherited


_PARENTS = "ParentHyperParameterTuningJobs"


def _parent(tables: TuningTables, name: str, region: str) -> TuningRow:
    try:
        parent = tables.get(name)
    except UnknownSearchError as error:
        raise ValidationError(
            f"Amazon SageMaker can't find a tuning job with the name {name} in the region {region}. "
            "Provide parent tuning jobs that exist."
        ) from error
    if not parent.is_terminal:
        raise ValidationError(
            f"The parent tuning job {name} is in status {parent.status}. All parent jobs must be in "
            "a terminal state (Completed, Stopped or Failed)."
        )
    return parent


def _misfits(request: Request, parent: TuningRow) -> Iterator[str]:
    """Yield the errors of a parent that does not match the request.

    If the request or the parent has the member `TrainingJobDefinitions`, which a warm start does not support,
    this is the only error.
    """
    if "TrainingJobDefinitions" in request or "TrainingJobDefinitions" in parent.request:
        yield "WarmStartConfig is not supported with TrainingJobDefinitions."
        return
    (new,), (old,) = read_definitions(request), read_definitions(parent.request)
    if (new.metric, new.maximize) != (old.metric, old.maximize):
        yield (
            f"The objective metric must be the same as the one of the parent tuning job {parent.name}; "
            f"got {new.metric}, the parent has {old.metric}."
        )
    if _names(new) != _names(old):
        yield (
            "The set of tunable plus static HyperParameter names is not the same across current and "
            "parent tuning jobs. Please ensure this set is constant when warm starting. Note that "
            "previously static HyperParameters can be tuned in warm start jobs and vice versa."
        )
    before = {each.name: each.kind for each in old.space.ranges}
    changed = [
        each.name for each in new.space.ranges if before.get(each.name, each.kind) != each.kind
    ]
    if changed:
        yield (
            f"The type of hyperparameter {changed[0]} must not change between the parent tuning job "
            f"{parent.name} and the new one."
        )
    num_changes = _num_changes(new, old)
    if num_changes > MAX_CHANGES:
        yield (
            f"The number of changes from tunable to static hyperparameters and of static values "
            f"[{num_changes}] must be less than or equal to {MAX_CHANGES}."
        )
    if request["WarmStartConfig"]["WarmStartType"] == "IdenticalDataAndAlgorithm":
        yield from _differences(new, old, parent.name)


def _names(definition: Definition) -> set[str]:
    return {*definition.space.names, *definition.static}


def _num_changes(new: Definition, old: Definition) -> int:
    """Return the number of changes to the parent's definition.

    A changed static value counts 2. A range that became static counts 1, or 1 per category if it is categorical.
    """
    fixed = [each for each in old.space.ranges if each.name in new.static]
    count = sum(len(each.values) if each.kind is RangeKind.CATEGORICAL else 1 for each in fixed)
    return count + sum(
        2 for name, value in old.static.items() if new.static.get(name, value) != value
    )


def _differences(new: Definition, old: Definition, parent: str) -> Iterator[str]:
    image = [each.template["AlgorithmSpecification"].get("TrainingImage") for each in (new, old)]
    if image[0] != image[1]:
        yield (
            "The training image must be the same as the one of the parent tuning job "
            f"{parent} when WarmStartType is IdenticalDataAndAlgorithm; got {image[0]}, the parent "
            f"has {image[1]}."
        )
    if new.template.get("InputDataConfig") != old.template.get("InputDataConfig"):
        yield (
            f"InputDataConfig must be the same as the one of the parent tuning job {parent} when "
            "WarmStartType is IdenticalDataAndAlgorithm."
        )


def _check_total(tables: TuningTables, request: Request, parents: list[TuningRow]) -> None:
    limits = request["HyperParameterTuningJobConfig"]["ResourceLimits"]
    launched = sum(len(tables.jobs(each.arn)) for each in parents)
    total = launched + limits.get("MaxNumberOfTrainingJobs", 0)
    if total > MAX_TRAINING_JOBS:
        raise ValidationError(
            f"The number of training jobs of all parent tuning jobs and the new one [{total}] must be less "
            f"than or equal to {MAX_TRAINING_JOBS}."
        )
