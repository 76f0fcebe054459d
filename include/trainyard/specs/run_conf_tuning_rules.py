"""Rules for the hyperparameter search of a run, checked on the run's conf alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.run_conf_tuning import (
    LIMITS,
    OBJECTIVES,
    THROUGHPUTS,
    combinations,
    ends_and_choices,
    read_ranges,
    trial_steps,
    with_values,
)
from trainyard.specs.tuning_job import SearchStrategy
from trainyard.specs.tuning_job_ranges import CategoricalRange, ContinuousRange, IntegerRange
from trainyard.specs.tuning_job_rules import MAX_JOBS, MAX_PARALLEL_JOBS, MIN_RUNTIME_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.tuning_job_ranges import ParameterRange

DIVIDING = (("hidden_size", "num_heads"), ("global_batch_size", "micro_batch_size"))
"""Pairs of hyperparameters of which the first must be a multiple of the second: between two values that fit, others do
not."""
CONSECUTIVE = 19
"""The least common multiple of 19 consecutive numbers is above the largest value of these hyperparameters."""
_LIST = 'list the values to try, all of which must fit: {"values": [...]}'


def tuning_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield every fault of the search that can be found without other data; nothing without a search."""
    if not conf.tune or conf.learning_rate <= 0:
        return  # the ranges start from the learning rate, whose fault is reported already
    ranges, unreadable = read_ranges(conf)
    findings = [*_words(conf), *_sizes(conf), *_plans(conf), *unreadable]
    for name, each in ranges.items():
        findings += _range(conf, name, each)
    findings += () if findings else _number_of_trials(conf, ranges)
    yield from findings
    if not findings:
        yield from _values_that_do_not_fit(conf, ranges)


def _words(conf: RunConf) -> Iterator[Finding]:
    choices = {"tuning_strategy": tuple(SearchStrategy), "tuning_objective": tuple(OBJECTIVES)}
    for name, allowed in choices.items():
        value = getattr(conf, name)
        if value not in allowed:
            yield _refused(name, "is not an allowed value", repr(value), ", ".join(allowed))
    objective, own = conf.tuning_objective, THROUGHPUTS.get(conf.model)
    if own and objective in {*THROUGHPUTS.values()} - {own}:
        losses = [name for name in OBJECTIVES if name not in THROUGHPUTS.values()]
        yield _refused(
            "tuning_objective",
            f"is a metric that the model {conf.model} does not log",
            objective,
            ", ".join([*losses, own]),
        )


def _plans(conf: RunConf) -> Iterator[Finding]:
    plans = [each.training_plan for each in conf.capacity_ladder if each.training_plan]
    if plans:
        yield Finding(
            where="tune",
            what="cannot be combined with a training plan: SageMaker runs no searches in plans",
            got=", ".join(plans),
            next_step="search in a separate run, then train in the plan with the values of its best trial",
        )


def _sizes(conf: RunConf) -> Iterator[Finding]:
    for name, least, most in (
        ("tuning_max_jobs", 1, MAX_JOBS),
        ("tuning_max_parallel_jobs", 1, MAX_PARALLEL_JOBS),
        ("tuning_max_steps", 0, conf.max_steps),
        ("tuning_instance_count", 0, conf.instance_count),
        ("tuning_max_run_s", 0, conf.max_run_s),
    ):
        value = getattr(conf, name)
        if value < least:
            yield _refused(name, "is too small", value, f"at least {least}")
        elif value > most:
            yield _refused(name, "is too large", value, f"at most {most}")
    count, limit_s, share = (
        conf.tuning_instance_count,
        conf.tuning_max_time_s,
        conf.tuning_budget_share,
    )
    if count > 0 and conf.instance_count % count:
        yield _refused(
            "tuning_instance_count",
            "does not divide instance_count, so a trial's ranks could not share the shards evenly",
            count,
            f"a divisor of {conf.instance_count}, or 0 for all of them",
        )
    if limit_s is not None and limit_s < MIN_RUNTIME_S:
        yield _refused("tuning_max_time_s", "is too small", limit_s, f"at least {MIN_RUNTIME_S}")
    if not 0 < share < 1:
        allowed = "more than 0 and less than 1"
        yield _refused("tuning_budget_share", "is not a share of the budget", f"{share:g}", allowed)
    if (
        "warmup_steps" not in read_ranges(conf)[0]
        and conf.num_warmup_steps >= trial_steps(conf) > 0
    ):
        yield _refused(
            "tuning_max_steps",
            "leaves no step of a trial at the full learning rate",
            f"{conf.tuning_max_steps} with warmup_steps {conf.num_warmup_steps}",
            "more than warmup_steps",
        )


def _range(conf: RunConf, name: str, given: ParameterRange) -> Iterator[Finding]:
    where = f"tuning_ranges.{name}"
    if name in conf.hyperparameters:
        yield Finding(
            where=where,
            what="is also set in hyperparameters",
            got=str(conf.hyperparameters[name]),
            next_step="remove it from one of them",
        )
    if conf.tuning_strategy == SearchStrategy.GRID and not isinstance(given, CategoricalRange):
        yield Finding(
            where=where,
            what="is an interval, but Grid tries listed values only",
            next_step='set {"values": [...]}, or choose another strategy',
        )
    if name not in LIMITS:
        return
    kind, least, most = LIMITS[name]
    if kind == "integer" and isinstance(given, ContinuousRange):
        yield Finding(
            where=where,
            what="is continuous, but its hyperparameter is a whole number",
            next_step='remove "type", or set it to integer',
        )
        return
    for value in ends_and_choices(given):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            yield Finding(where=where, what="has a value that is not a number", got=repr(value))
        elif kind == "integer" and value != int(value):
            yield Finding(where=where, what="allows whole numbers only", got=f"{value:g}")
        elif not least <= value <= most:
            allowed = f"{least:g} to {most:g}" if most < float("inf") else f"at least {least:g}"
            yield _refused(where, "is outside its limits", f"{value:g}", allowed)


def _number_of_trials(conf: RunConf, ranges: Mapping[str, ParameterRange]) -> Iterator[Finding]:
    if not ranges:
        yield Finding(
            where="tuning_ranges",
            what="is empty, and hyperparameters already set every value of the default search",
            next_step="add at least one range",
        )
        return
    total = combinations(ranges)
    if conf.tuning_strategy == SearchStrategy.GRID and total > conf.tuning_max_jobs:
        yield _refused(
            "tuning_max_jobs",
            "is less than the number of combinations of the ranges; Grid tries all of them",
            conf.tuning_max_jobs,
            f"at least {int(total)}",
        )
    elif conf.tuning_strategy != SearchStrategy.GRID and total < conf.tuning_max_jobs:
        yield _refused(
            "tuning_max_jobs",
            "is more than the number of combinations of the ranges",
            conf.tuning_max_jobs,
            f"at most {int(total)}",
        )


def _values_that_do_not_fit(
    conf: RunConf, ranges: Mapping[str, ParameterRange]
) -> Iterator[Finding]:
    """Yield the faults of a trial's conf that are caused by values in the ranges. Not every value is checked.

    The checked values of a range are its choices, or its two ends. The other fields have the values of the
    conf, except that `max_steps` is that of a trial, and a searched `warmup_steps` is 0.

    `DIVIDING` lists pairs of hyperparameters in which the second must divide the first. For these
    hyperparameters, `_values_to_check` adds values between the ends of a range:

    - If both hyperparameters of a pair have a range, all combinations of their values are checked, but only
      the first fault is reported.
    - If only one has a range, and this range is a list of choices, all faults are reported.
    - If only one has a range, and this range is not a list of choices, only the first fault is reported.
    """
    searched: dict[str, Any] = {"warmup_steps": 0} if "warmup_steps" in ranges else {}
    try:
        trial = with_values(conf, {"max_steps": trial_steps(conf), **searched})
    except SpecError:
        return  # the faults of the conf itself are reported already
    pairs = [{name: ranges[name] for name in pair if name in ranges} for pair in DIVIDING]
    for group in filter(None, pairs):
        faults = _faults_of_values(trial, group)
        if [type(each) for each in group.values()] == [CategoricalRange]:
            yield from faults
        else:
            yield from (replace(each, next_step=_LIST) for each in islice(faults, 1))
    for name in (each for each in ranges if each not in chain(*DIVIDING)):
        yield from _faults_of_values(trial, {name: ranges[name]})


def _faults_of_values(trial: RunConf, group: Mapping[str, ParameterRange]) -> Iterator[Finding]:
    where = " with ".join(f"tuning_ranges.{name}" for name in group)
    for values in product(*(_values_to_check(name, each) for name, each in group.items())):
        try:
            with_values(trial, dict(zip(group, values, strict=True)))
        except SpecError as error:
            for found in error.findings:
                what = f"makes a trial invalid, because {found.where} {found.what}"
                yield replace(found, where=where, what=what)


def _values_to_check(name: str, given: ParameterRange) -> tuple[Any, ...]:
    """Return the values of a range to try: its choices or its two ends.

    If the hyperparameter is in `DIVIDING` and its range is an `IntegerRange`, the next values above the lower
    end are added. The result then has up to `CONSECUTIVE` (19) consecutive values. This is enough: if any value
    of the range makes a trial's conf invalid, one of the returned values does so, too.
    """
    values = ends_and_choices(given)
    if not isinstance(given, IntegerRange) or name not in chain(*DIVIDING):
        return values
    low = given.min_value
    return (*values, *range(low + 1, min(given.max_value, low + CONSECUTIVE)))


def _refused(where: str, what: str, got: object, allowed: str) -> Finding:
    return Finding(where=where, what=what, got=str(got), allowed=allowed)
