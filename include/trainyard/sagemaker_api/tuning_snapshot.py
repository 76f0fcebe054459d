"""A tuning job (search) and its trials, read from the service's responses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from trainyard.cost.job_cost import job_cost
from trainyard.errors import ContractError
from trainyard.job_status import TERMINAL_STATUSES, JobStatus
from trainyard.sagemaker_api.snapshot import epoch
from trainyard.specs.training_job_rules import RESERVED_HYPERPARAMETERS
from trainyard.specs.tuning_job_rules import OBJECTIVE_KEY
from trainyard.tuning.trials import Trial, plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFacts:
    """Members of the Describe response that only tuning jobs (searches) have.

    `JobSnapshot` has the members of all kinds of jobs.

    Attributes:
        objective_type: `Minimize` or `Maximize`.
        best_name: the best training job, which may be from a parent search; None until there is one.
        best_value: objective of the best training job.
        best_tuned: tuned hyperparameters of the best training job, as wire text.
        static: static hyperparameters of the best training job's definition, without those of the service and
            the toolkit. Without a best training job, they are those of the search's first definition.
        counters: numbers of trials and of objectives by state. They change whenever a trial changes its state.
        has_criteria: whether completion criteria may end the search before all its trials have run.
        max_jobs: largest number of trials; None if the search sets none.
    """

    strategy: str
    metric_name: str
    objective_type: str
    best_name: str | None
    best_value: float | None
    best_tuned: Mapping[str, str]
    static: Mapping[str, str]
    counters: Mapping[str, int]
    has_criteria: bool
    max_jobs: int | None = None

    @classmethod
    def from_describe(cls, description: Mapping[str, Any]) -> Self:
        """Build the facts from the response of DescribeHyperParameterTuningJob.

        Raises:
            ContractError: the mapping is not such a response.
        """
        config = description.get("HyperParameterTuningJobConfig")
        definitions = description.get("TrainingJobDefinitions") or [
            description.get("TrainingJobDefinition")
        ]
        if config is None or definitions[0] is None:
            raise ContractError(
                "the Describe response is not that of a search",
                got=f"the keys {', '.join(sorted(description))}",
            )
        best = description.get("OverallBestTrainingJob") or description.get("BestTrainingJob") or {}
        definition = _definition_of(best, definitions)
        objective = (
            config.get("HyperParameterTuningJobObjective") or definitions[0]["TuningObjective"]
        )
        return cls(
            strategy=config["Strategy"],
            metric_name=objective["MetricName"],
            objective_type=objective["Type"],
            best_name=best.get("TrainingJobName"),
            best_value=_objective(best),
            best_tuned=dict(best.get("TunedHyperParameters", {})),
            static={
                name: value
                for name, value in definition.get("StaticHyperParameters", {}).items()
                if name != OBJECTIVE_KEY and not name.startswith(RESERVED_HYPERPARAMETERS)
            },
            counters={
                **description.get("TrainingJobStatusCounters", {}),
                **{f"o{k}": v for k, v in description.get("ObjectiveStatusCounters", {}).items()},
            },
            has_criteria=bool(config.get("TuningJobCompletionCriteria")),
            max_jobs=config.get("ResourceLimits", {}).get("MaxNumberOfTrainingJobs"),
        )

    @property
    def maximize(self) -> bool:
        """True if a higher objective is better."""
        return self.objective_type == "Maximize"


def trial_of(
    summary: Mapping[str, Any],
    *,
    job: JobSnapshot | None = None,
    usd_per_s: float | None = None,
) -> Trial:
    """Build a trial from its summary in a response of ListTrainingJobsForHyperParameterTuningJob.

    Args:
        summary: the trial's summary.
        job: the trial's training job; without it, an ended trial counts as billed for its whole duration.
        usd_per_s: price of a trial per second, for instances without a catalogue price.
    """
    started_at = epoch(summary.get("TrainingStartTime"))
    ended_at = epoch(summary.get("TrainingEndTime"))
    billable = job.billable_seconds if job else None
    if billable is None and started_at is not None and ended_at is not None:
        billable = max(0, round(ended_at - started_at))
    cost = None
    if summary["TrainingJobStatus"] in TERMINAL_STATUSES:
        known = job_cost({**job.to_dict(), "billable_seconds": billable or 0}) if job else None
        cost = known.cost_usd if known else None
        if cost is None and usd_per_s is not None:
            cost = (billable or 0) * usd_per_s
    return Trial(
        training_job_name=summary["TrainingJobName"],
        definition=summary.get("TrainingJobDefinitionName"),
        status=summary["TrainingJobStatus"],
        objective=_objective(summary) if summary.get("ObjectiveStatus") != "Failed" else None,
        tuned_hyperparameters={
            name: plain_text(value) for name, value in summary["TunedHyperParameters"].items()
        },
        started_at=started_at,
        ended_at=ended_at,
        billable_seconds=billable if billable is None else float(billable),
        cost_usd=cost,
        failure_reason=summary.get("FailureReason"),
    )


def with_early_stops(trials: Sequence[Trial], *, was_cut: bool) -> list[Trial]:
    """Return the trials of an ended tuning job; `is_early_stopped` marks those ended by early stopping.

    Args:
        trials: all trials of the search.
        was_cut: whether the end of the search may have stopped trials. If so, a stopped trial is marked only if another
            trial started after its end.
    """
    last_start = max((each.started_at or 0.0 for each in trials), default=0.0)

    def is_early(trial: Trial) -> bool:
        if trial.status != JobStatus.STOPPED:
            return False
        return not was_cut or (trial.ended_at is not None and trial.ended_at < last_start)

    return [replace(each, is_early_stopped=is_early(each)) for each in trials]


def _definition_of(
    best: Mapping[str, Any], definitions: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    name = best.get("TrainingJobDefinitionName")
    named = (each for each in definitions if name and each.get("DefinitionName") == name)
    return next(named, definitions[0])


def _objective(summary: Mapping[str, Any]) -> float | None:
    value = summary.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value")
    return None if value is None else float(value)
