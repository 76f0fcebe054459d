"""`TuningJobSpec`: one hyperparameter search in the SageMaker SDK tuner's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.limits import STOP_RESERVE_S
from trainyard.specs.reading import READ_EACH, FromMapping, read_each
from trainyard.specs.training_job import TrainingJobSpec  # noqa: TC001  # see above
from trainyard.specs.tuning_job_ranges import CategoricalRange, ParameterRange, read_range
from trainyard.specs.tuning_job_rules import tuning_checks


class SearchStrategy(StrEnum):
    """Method by which a search chooses the next trial's values."""

    BAYESIAN = "Bayesian"
    RANDOM = "Random"
    GRID = "Grid"
    """Every combination once; categorical ranges only."""
    HYPERBAND = "Hyperband"
    """Stops the worse of many trials early; the script must report the objective while it trains."""


class ObjectiveType(StrEnum):
    """Direction of the objective."""

    MINIMIZE = "Minimize"
    MAXIMIZE = "Maximize"


class EarlyStopping(StrEnum):
    """Setting of the service's early stopping, which ends trials that are unlikely to be the best."""

    OFF = "Off"
    AUTO = "Auto"


class WarmStartType(StrEnum):
    """Allowed differences between a search and its parents."""

    IDENTICAL = "IdenticalDataAndAlgorithm"
    TRANSFER = "TransferLearning"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCriteria:
    """Conditions that end a search before its limits; the first that is met ends it."""

    target_objective_metric_value: float | None = None
    max_number_of_training_jobs_not_improving: int | None = None
    complete_on_convergence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperbandResources:
    """Smallest and largest resource of a Hyperband trial. The unit is one logged value of the objective."""

    min_resource: int = 1
    max_resource: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Warm start: names of the parent tuning jobs whose results a search uses."""

    parents: tuple[str, ...]
    warm_start_type: WarmStartType = WarmStartType.IDENTICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJobSpec(FromMapping):
    """One search: a training job, the varied hyperparameters, the objective, and the limits.

    A trial is the training job with other hyperparameters. The launcher's flags are static hyperparameters, so
    distributed trials work.

    The spec rejects everything that the service's tuning jobs do not support, such as a container entrypoint.
    `forward_sigterm` needs a container entrypoint, so the ranks of a trial receive no SIGTERM if the trial is
    stopped (by early stopping, Hyperband, a limit or a person). The ranks are killed after at most 120 s. The
    script must therefore save its checkpoints, and the model of the last evaluation, while it trains.

    Attributes:
        training: the trial. Its `checkpoint_s3_uri` is a prefix: the service appends the trial's name, and no
            trial resumes from the checkpoints of another. Its `max_run` limits one trial; the cost limit of the
            search is calculated from it.
        hyperparameter_ranges: mapping from name to range (`read_range`); a list is a categorical range.
        objective_metric_name: one of the training's metric_definitions.
        max_jobs: total number of trials. None if `max_runtime_s` or `completion_criteria` ends the search, and
            for the strategy Grid, which tries all combinations of the ranges.
        max_runtime_s: time limit of the whole search; a search that reaches it returns the best trial so far.
        early_stopping_type: Auto stops trials that are worse than the median; not valid with Hyperband, which
            has its own method.
        random_seed: seed of the search; the same seed gives the same sequence of values.
        hyperband: resources of a trial; without them the service uses a static hyperparameter such as `epochs`.
        budget_usd: limit of the cost of all trials of all attempts, by the on-demand price. The search is
            stopped before further trials would exceed it, and returns the best trial so far; None = no limit.
        max_cost_usd: cap of the billed cost of all trials of all attempts. The cap limits the request's
            `max_runtime_s`: the service ends the search `stop_reserve_s` seconds before the parallel trials
            together could exceed the cap. None = no cap.
    """

    training: TrainingJobSpec
    hyperparameter_ranges: Mapping[str, Any] = field(metadata={READ_EACH: read_range})
    objective_metric_name: str
    objective_type: ObjectiveType
    strategy: SearchStrategy = SearchStrategy.BAYESIAN
    max_jobs: int | None = None
    max_parallel_jobs: int = 1
    max_runtime_s: int | None = None
    early_stopping_type: EarlyStopping = EarlyStopping.OFF
    completion_criteria: CompletionCriteria | None = None
    random_seed: int | None = None
    hyperband: HyperbandResources | None = None
    warm_start: WarmStart | None = None
    budget_usd: float | None = None
    max_cost_usd: float | None = None
    stop_reserve_s: int = STOP_RESERVE_S
    raw_request_overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the ranges and check the fields of the spec.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        where = "hyperparameter_ranges"
        ranges, findings = read_each(read_range, self.hyperparameter_ranges, where=where)
        findings += chain.from_iterable(self.checks(ranges))
        if findings:
            raise SpecError(findings, subject="TuningJobSpec")
        object.__setattr__(self, "hyperparameter_ranges", ranges)

    def checks(
        self, ranges: Mapping[str, ParameterRange] | None = None
    ) -> Iterator[Iterable[Finding]]:
        """Yield the findings of each rule, as one lazy iterable per rule.

        Args:
            ranges: the ranges that could be read; None = all.
        """
        return tuning_checks(self, ranges)

    @property
    def ranges(self) -> Mapping[str, ParameterRange]:
        """The ranges by the name of their hyperparameter."""
        return self.hyperparameter_ranges

    @property
    def categorical(self) -> frozenset[str]:
        """Names of the categorical hyperparameters."""
        return frozenset(n for n, r in self.ranges.items() if isinstance(r, CategoricalRange))

    @property
    def num_trials(self) -> int | None:
        """Largest number of trials; None if only time or criteria end the search."""
        if self.max_jobs is None and self.strategy is SearchStrategy.GRID:
            total = 1
            for each in self.ranges.values():
                total *= int(each.num_values)
            return total
        return self.max_jobs
