"""Rules for one tuning job spec that need no other data. Each fault is one finding.

Limits are those of CreateHyperParameterTuningJob (API reference, "Automatic model tuning quotas" and botocore,
November 2026).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding
from trainyard.specs.built_in_rules import is_built_in
from trainyard.specs.limits import MONEY_FIELDS, number_findings
from trainyard.specs.training_job_rules import (
    MAX_HYPERPARAMETERS,
    NUM_SCRIPT_MODE_HYPERPARAMETERS,
    RESERVED_HYPERPARAMETERS,
)
from trainyard.specs.tuning_job_ranges import LONGEST_TEXT, CategoricalRange, ParameterRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.tuning_job import TuningJobSpec

MAX_NAME_CHARACTERS = 32
MAX_JOBS = 750
MAX_PARALLEL_JOBS = 100
MIN_RUNTIME_S, MAX_RUNTIME_S = 120, 15_768_000
MAX_RANGES = 30
MAX_ENVIRONMENT = 48
MAX_PARENTS = 5
MIN_NOT_IMPROVING = 3
OBJECTIVE_KEY = "_tuning_objective_metric"
EPOCH_KEYS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters from which the service infers Hyperband's max_resource, in its documentation's order."""

_BOUNDS = {
    "max_jobs": (1, MAX_JOBS),
    "max_parallel_jobs": (1, MAX_PARALLEL_JOBS),
    "max_runtime_s": (MIN_RUNTIME_S, MAX_RUNTIME_S),
    "random_seed": (0, 2**31 - 1),
}
"""Smallest and largest value by field."""

# Members of CreateTrainingJob that HyperParameterTrainingJobDefinition lacks (botocore 1.44).
_NOT_IN_A_TRIAL: Mapping[str, str] = {
    "container_entry_point": "a trial runs the image's entry point",
    "container_arguments": "a trial runs the image's entry point",
    "forward_sigterm": "it needs container_entry_point, so a stopped trial's ranks receive no SIGTERM",
    "training_image_config": "",
    "serverless_job_config": "",
    "training_plan": "SageMaker runs no searches in training plans",
    "enable_sagemaker_metrics": "",
    "debugger_hook_config": "",
    "rules": "",
    "profiler_config": "",
    "profiler_rules": "",
    "disable_profiler": "",
    "tensorboard_output_config": "",
    "experiment_config": "",
    "enable_remote_debug": "",
    "enable_infra_check": "",
    "enable_session_tag_chaining": "",
    "model_package_config": "register the best trial's model instead",
    "mlflow_config": "",
    "capacity_ladder": "set instance_type instead",
    "budget_usd": "set the search's own budget_usd",
    "max_cost_usd": "set the search's own max_cost_usd",
}


def tuning_checks(
    spec: TuningJobSpec, ranges: Mapping[str, ParameterRange] | None = None
) -> Iterator[Iterator[Finding]]:
    """Yield the findings of each rule for a tuning job spec, as one lazy iterator per rule.

    On a partial spec (`reading.check_spec`), a rule ends at the first missing field that it reads.

    Args:
        spec: the spec. Its training job has already been checked.
        ranges: the spec's ranges that could be read; None = all.
    """
    for name in _NOT_IN_A_TRIAL:
        yield _unsupported(spec, name)
    yield _environment(spec)
    yield _preferred(spec)
    yield _objective(spec)
    yield _names(spec)
    yield _counts(spec)
    yield _combinations(spec, ranges)
    for name, (least, most) in _BOUNDS.items():
        yield _bound(spec, name, least, most)
    for name in MONEY_FIELDS:
        yield number_findings(spec, only=(name,))
    yield _grid(spec, ranges)
    yield _hyperband(spec)
    yield _criteria(spec)
    yield _parents(spec)


def _unsupported(spec: TuningJobSpec, name: str) -> Iterator[Finding]:
    if getattr(spec.training, name) not in (None, False, (), {}):
        why = _NOT_IN_A_TRIAL[name]
        yield Finding(
            where=f"training.{name}",
            what="is not supported in a tuning job" + (f" ({why})" if why else ""),
            next_step=f"remove {name}",
        )


def _environment(spec: TuningJobSpec) -> Iterator[Finding]:
    if len(spec.training.environment) > MAX_ENVIRONMENT:
        yield Finding(
            where="training.environment",
            what="has too many variables for a tuning job",
            got=str(len(spec.training.environment)),
            allowed=f"at most {MAX_ENVIRONMENT}",
        )


def _preferred(spec: TuningJobSpec) -> Iterator[Finding]:
    if any(each.training_plan_arns for each in spec.training.instance_preferences):
        yield Finding(
            where="training.instance_preferences",
            what="cannot name training plans in a tuning job",
            next_step="remove training_plan_arns",
        )


def _objective(spec: TuningJobSpec) -> Iterator[Finding]:
    known = [each.name for each in spec.training.metric_definitions]
    if spec.objective_metric_name in known or spec.training.algorithm_name:
        return
    if is_built_in(spec.training):
        return  # The service reads its own algorithms' metrics by itself.
    yield Finding(
        where="objective_metric_name",
        what="is not in training.metric_definitions, so SageMaker could not read it from a trial's log",
        got=repr(spec.objective_metric_name),
        allowed=", ".join(known) or "none (training.metric_definitions is empty)",
        next_step="define it in training.metric_definitions: a name, and a regex whose first group is the value",
    )


def _names(spec: TuningJobSpec) -> Iterator[Finding]:
    given, static = spec.hyperparameter_ranges, spec.training.hyperparameters
    if not given:
        yield Finding(
            where="hyperparameter_ranges", what="is empty", next_step="add at least one range"
        )
    if len(given) > MAX_RANGES:
        yield _too_many("hyperparameter_ranges", len(given), MAX_RANGES)
    # The service adds the objective's name, and script mode what starts the script.
    taken = len(given) + 1 + (NUM_SCRIPT_MODE_HYPERPARAMETERS if spec.training.entry_point else 0)
    if len(static) > MAX_HYPERPARAMETERS - taken:
        yield _too_many("training.hyperparameters", len(static), MAX_HYPERPARAMETERS - taken)
    for name in given:
        where = f"hyperparameter_ranges.{name}"
        if name in static:
            yield Finding(
                where=where,
                what="is also a static hyperparameter",
                got=f"training.hyperparameters.{name} = {static[name]!r}",
                next_step="remove one of the two",
            )
        if name.startswith((RESERVED_HYPERPARAMETERS, OBJECTIVE_KEY)):
            yield Finding(
                where=where,
                what="starts with a prefix that SageMaker reserves",
                allowed=f"names that do not start with {RESERVED_HYPERPARAMETERS} or {OBJECTIVE_KEY}",
                next_step="rename it",
            )
        if not 0 < len(name) <= LONGEST_TEXT:
            yield Finding(
                where=where,
                what="has a name that is empty or too long",
                got=f"{len(name)} characters",
                allowed=f"1 to {LONGEST_TEXT} characters",
                next_step="rename it",
            )


def _bound(spec: TuningJobSpec, name: str, least: int, most: int) -> Iterator[Finding]:
    value = getattr(spec, name)
    if value is not None and not least <= value <= most:
        yield _out_of(name, value, least, most)


def _counts(spec: TuningJobSpec) -> Iterator[Finding]:
    if spec.max_jobs is None:
        ends = spec.max_runtime_s or spec.completion_criteria
        if not ends and spec.strategy != "Grid":
            yield Finding(
                where="max_jobs",
                what="is required unless max_runtime_s or completion_criteria end the search",
                allowed=f"1 to {MAX_JOBS}",
            )
    elif 1 <= spec.max_jobs < spec.max_parallel_jobs:
        yield Finding(
            where="max_parallel_jobs",
            what="is more than max_jobs",
            got=str(spec.max_parallel_jobs),
            allowed=f"1 to {spec.max_jobs}",
        )


def _combinations(
    spec: TuningJobSpec, ranges: Mapping[str, ParameterRange] | None
) -> Iterator[Finding]:
    read = spec.ranges if ranges is None else ranges
    is_whole = len(read) == len(spec.hyperparameter_ranges)
    if spec.max_jobs is not None and is_whole and spec.strategy != "Grid":
        yield from _enough(spec.max_jobs, read)


def _enough(max_jobs: int, ranges: Mapping[str, ParameterRange]) -> Iterator[Finding]:
    """Yield an error if there are more trials than combinations: the service rejects such a search."""
    combinations = math.prod(each.num_values for each in ranges.values())
    if ranges and combinations < max_jobs:
        yield Finding(
            where="max_jobs",
            what="is more than the number of combinations of the ranges",
            got=str(max_jobs),
            allowed=f"at most {int(combinations)}",
            next_step="widen a range, or lower max_jobs",
        )


def _grid(spec: TuningJobSpec, ranges: Mapping[str, ParameterRange] | None) -> Iterator[Finding]:
    if spec.strategy != "Grid":
        return
    ranges = spec.ranges if ranges is None else ranges
    other = [name for name, each in ranges.items() if not isinstance(each, CategoricalRange)]
    if other:
        yield Finding(
            where=f"hyperparameter_ranges.{other[0]}",
            what="is not categorical, but Grid tries listed values only",
            next_step="list its values, or choose another strategy",
        )
        return
    total = int(math.prod(each.num_values for each in ranges.values()))
    if total > MAX_JOBS:
        yield _too_many("hyperparameter_ranges (combinations)", total, MAX_JOBS)
    if spec.max_jobs is not None and spec.max_jobs != total:
        yield Finding(
            where="max_jobs",
            what="differs from the number of combinations; Grid tries all of them",
            got=str(spec.max_jobs),
            allowed=str(total),
            next_step="remove max_jobs",
        )


def _hyperband(spec: TuningJobSpec) -> Iterator[Finding]:
    resources = spec.hyperband
    if spec.strategy != "Hyperband":
        if resources is not None:
            yield Finding(
                where="hyperband",
                what="is allowed for strategy Hyperband only",
                got=f"strategy {spec.strategy}",
                next_step="remove hyperband",
            )
        return
    if spec.early_stopping_type != "Off":
        yield Finding(
            where="early_stopping_type",
            what="cannot be combined with Hyperband, which stops trials by its own rule",
            got=str(spec.early_stopping_type),
            allowed="Off",
        )
    if resources is None:
        if not any(key in spec.training.hyperparameters for key in EPOCH_KEYS):
            yield Finding(
                where="hyperband",
                what="is required, because no static hyperparameter sets the length of a trial",
                allowed='{"min_resource": 1, "max_resource": <number of objective values that a trial logs>}',
            )
    elif not 1 <= resources.min_resource <= resources.max_resource:
        yield Finding(
            where="hyperband.min_resource",
            what="is out of range",
            got=str(resources.min_resource),
            allowed=f"1 to max_resource ({resources.max_resource})",
        )


def _criteria(spec: TuningJobSpec) -> Iterator[Finding]:
    criteria = spec.completion_criteria
    if criteria is None:
        return
    patience = criteria.max_number_of_training_jobs_not_improving
    if patience is not None and patience < MIN_NOT_IMPROVING:
        yield Finding(
            where="completion_criteria.max_number_of_training_jobs_not_improving",
            what="is too small",
            got=str(patience),
            allowed=f"at least {MIN_NOT_IMPROVING}",
        )
    is_empty = criteria.target_objective_metric_value is None and patience is None
    if is_empty and not criteria.complete_on_convergence:
        yield Finding(
            where="completion_criteria", what="is empty", next_step="remove it, or add a criterion"
        )


def _parents(spec: TuningJobSpec) -> Iterator[Finding]:
    if spec.warm_start is None:
        return
    parents = spec.warm_start.parents
    if not 1 <= len(parents) <= MAX_PARENTS or len(set(parents)) < len(parents):
        yield Finding(
            where="warm_start.parents",
            what="must list different tuning jobs",
            got=", ".join(map(repr, parents)) or "none",
            allowed=f"1 to {MAX_PARENTS} different names",
        )
    for index, name in enumerate(parents):
        if not 0 < len(name) <= MAX_NAME_CHARACTERS:
            yield Finding(
                where=f"warm_start.parents[{index}]",
                what="is not a tuning job name",
                got=repr(name),
                allowed=f"1 to {MAX_NAME_CHARACTERS} characters",
            )


def _too_many(where: str, got: int, most: int) -> Finding:
    return Finding(where=where, what="are too many", got=str(got), allowed=f"at most {most}")


def _out_of(where: str, got: Any, least: int, most: int) -> Finding:
    return Finding(where=where, what="is out of range", got=str(got), allowed=f"{least} to {most}")
