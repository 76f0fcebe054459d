"""The search of a run's conf: its hyperparameters, their ranges, and the number and length of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, unknown_key
from trainyard.specs.tuning_job import EarlyStopping, ObjectiveType, SearchStrategy
from trainyard.specs.tuning_job_ranges import (
    CategoricalRange,
    ContinuousRange,
    IntegerRange,
    ParameterRange,
    Scaling,
    read_range,
)

if TYPE_CHECKING:
    from trainyard.specs.run_conf import RunConf

OBJECTIVES = {
    "validation:loss": ObjectiveType.MINIMIZE,
    "train:loss": ObjectiveType.MINIMIZE,
    "train:tokens_per_second": ObjectiveType.MAXIMIZE,
    "train:samples_per_second": ObjectiveType.MAXIMIZE,
}
THROUGHPUTS = {"gpt": "train:tokens_per_second", "mlp": "train:samples_per_second"}
"""The throughput that a training of each model logs."""
EVALUATIONS_OF_A_TRIAL = 5
"""Evaluations per trial; early stopping and Hyperband use their results."""

# Hyperparameters of training_scripts/ that a search may vary: the kind of range, the least and the most.
LIMITS: Mapping[str, tuple[str, float, float]] = {
    "learning_rate": ("continuous", 0.0, math.inf),
    "weight_decay": ("continuous", 0.0, math.inf),
    "min_learning_rate_ratio": ("continuous", 0.0, 1.0),
    "clip_norm": ("continuous", 0.0, math.inf),
    "dropout": ("continuous", 0.0, 0.95),
    "warmup_steps": ("integer", 0, math.inf),
    "global_batch_size": ("integer", 1, math.inf),
    "micro_batch_size": ("integer", 1, math.inf),
    "num_layers": ("integer", 1, math.inf),
    "num_heads": ("integer", 1, math.inf),
    "hidden_size": ("integer", 1, math.inf),
}
CHOICES = ("precision", "learning_rate_scaling")
TUNABLE = (*LIMITS, *CHOICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of the search in a conf, with their defaults filled in.

    Attributes:
        max_jobs: number of trials; for a Grid, the number of combinations.
        num_steps: optimizer steps of a trial.
        eval_interval: steps between the evaluations of a trial.
        instance_count: instances of each trial.
        max_run_s: time limit of a trial.
        max_time_s: time limit of the whole search; None = no limit.
        budget_usd: the search's share of the run's budget, or of its cost cap if that is less; None if the run has
            neither.
        max_cost_usd: the search's share of the cost cap; None without a cap.
        ranges: ranges by hyperparameter.
    """

    strategy: SearchStrategy
    max_jobs: int
    max_parallel_jobs: int
    num_steps: int
    eval_interval: int
    instance_count: int
    max_run_s: int
    max_time_s: int | None
    budget_usd: float | None
    max_cost_usd: float | None
    metric_name: str
    objective_type: ObjectiveType
    early_stopping: EarlyStopping
    ranges: Mapping[str, ParameterRange]


def search_of(conf: RunConf) -> SearchSettings | None:
    """Return the settings of the conf's search, with the defaults filled in; None without a search."""
    if not conf.tune:
        return None
    steps, ranges = trial_steps(conf), read_ranges(conf)[0]
    strategy = SearchStrategy(conf.tuning_strategy)
    jobs = int(combinations(ranges)) if strategy is SearchStrategy.GRID else conf.tuning_max_jobs
    limits = [each for each in (conf.budget_usd, conf.max_cost_usd) if each is not None]
    # Hyperband is early stopping already.
    is_stopping = conf.tuning_early_stopping and strategy is not SearchStrategy.HYPERBAND
    return SearchSettings(
        strategy=strategy,
        max_jobs=jobs,
        max_parallel_jobs=min(conf.tuning_max_parallel_jobs, jobs),
        num_steps=steps,
        eval_interval=max(1, steps // EVALUATIONS_OF_A_TRIAL),
        instance_count=conf.tuning_instance_count or conf.instance_count,
        max_run_s=conf.tuning_max_run_s or conf.max_run_s,
        max_time_s=conf.tuning_max_time_s,
        budget_usd=min(limits) * conf.tuning_budget_share if limits else None,
        max_cost_usd=conf.max_cost_usd and conf.max_cost_usd * conf.tuning_budget_share,
        metric_name=conf.tuning_objective,
        objective_type=OBJECTIVES[conf.tuning_objective],
        early_stopping=EarlyStopping.AUTO if is_stopping else EarlyStopping.OFF,
        ranges=ranges,
    )


def trial_steps(conf: RunConf) -> int:
    """Return a trial's optimizer steps: `tuning_max_steps` or, if it is 0, a number derived from the training.

    The derived number is the larger of two numbers: a quarter of the training's steps, and twice its warm-up
    steps. It is at most `max_steps`. Worked example: for a training of 400 steps with 40 warm-up steps, a trial
    has 100 steps. With 80 warm-up steps, it has 160.
    """
    if conf.tuning_max_steps:
        return conf.tuning_max_steps
    return min(conf.max_steps, max(1, conf.max_steps // 4, 2 * conf.num_warmup_steps))


def read_ranges(conf: RunConf) -> tuple[dict[str, ParameterRange], list[Finding]]:
    """Return (ranges, findings): the valid ranges of the conf's search, and the faults of the invalid ones.

    Without `tuning_ranges`, the ranges are `default_ranges`. A range needs only its two bounds, because its
    hyperparameter determines its kind. Instead of bounds, a range can have `values`, or be a list of choices.
    """
    if not conf.tuning_ranges:
        return default_ranges(conf), []
    ranges: dict[str, ParameterRange] = {}
    findings: list[Finding] = []
    for name, given in conf.tuning_ranges.items():
        if name not in TUNABLE:
            findings.append(unknown_key("tuning_ranges", name, TUNABLE))
            continue
        value = given
        if isinstance(given, Mapping) and "type" not in given:
            kind = "categorical" if "values" in given or name in CHOICES else LIMITS[name][0]
            value = {"type": kind, **given}
        try:
            ranges[name] = read_range(value, where=f"tuning_ranges.{name}")
        except SpecError as error:
            findings += error.findings
    return ranges, findings


def default_ranges(conf: RunConf) -> dict[str, ParameterRange]:
    """Return the default ranges, without the hyperparameters that the conf fixes in `hyperparameters`.

    - Learning rate: an eighth to four times the conf's, logarithmic.
    - Weight decay: 0.01 to 0.5, logarithmic.
    - Warm-up: 1 step to a third of a trial; not for the model `mlp`.
    - Dropout: 0 to 0.4; only for the model `mlp`.
    """
    rate, longest = conf.learning_rate, trial_steps(conf) // 3
    ranges: dict[str, ParameterRange] = {
        "learning_rate": ContinuousRange(
            min_value=rate / 8, max_value=rate * 4, scaling_type=Scaling.LOGARITHMIC
        ),
        "weight_decay": ContinuousRange(
            min_value=0.01, max_value=0.5, scaling_type=Scaling.LOGARITHMIC
        ),
    }
    if conf.model == "mlp":
        ranges["dropout"] = ContinuousRange(
            min_value=0.0, max_value=0.4, scaling_type=Scaling.LINEAR
        )
    elif longest > 1:
        ranges["warmup_steps"] = IntegerRange(
            min_value=1, max_value=longest, scaling_type=Scaling.LINEAR
        )
    return {name: each for name, each in ranges.items() if name not in conf.hyperparameters}


def combinations(ranges: Mapping[str, ParameterRange]) -> float:
    """Return the number of different combinations of values from the ranges.

    It is infinite if a range is continuous.
    """
    return math.prod(each.num_values for each in ranges.values())


def ends_and_choices(given: ParameterRange) -> tuple[Any, ...]:
    """Return the values of a range to check: its two ends, or all of its choices."""
    if isinstance(given, CategoricalRange):
        return given.values
    return given.min_value, given.max_value


def with_values(conf: RunConf, values: Mapping[str, Any]) -> RunConf:
    """Return the conf with these hyperparameters, such as those of the best trial, and without a search.

    Raises:
        SpecError: the values do not fit the conf.
    """
    names = type(conf).__dataclass_fields__
    further = {name: value for name, value in values.items() if name not in names}
    params = {
        **{name: getattr(conf, name) for name in names},
        **{name: value for name, value in values.items() if name in names},
        "tune": False,
        "hyperparameters": {**conf.hyperparameters, **further},
    }
    return type(conf).from_mapping(params)
