"""`TuningJobType`: searches by SageMaker's Automatic Model Tuning."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainyard.cost.training_price import instances_in_words, training_usd
from trainyard.errors import BudgetExceededError, TrainingRunError
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.sagemaker_api.tuning_snapshot import with_early_stops
from trainyard.specs.tuning_job import TuningJobSpec
from trainyard.specs.tuning_job_rules import MAX_RUNTIME_S, MIN_RUNTIME_S
from trainyard.tuning.ceiling import (
    Ceiling,
    check_affordable,
    estimate,
    spent_usd,
)
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trial_table import trial_table
from trainyard.tuning.trials import PARQUET, to_parquet
from trainyard.units import format_usd
from trainyard_airflow.jobs.cost_cap import cap_of
from trainyard_airflow.jobs.job_code import job_image
from trainyard_airflow.jobs.job_place import JobPlace
from trainyard_airflow.jobs.job_type import JobType
from trainyard_airflow.jobs.training import channel_uris
from trainyard_airflow.jobs.tuning_result import ended_by, tuning_result, usable_best
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.tuning.trials import Trial
    from trainyard_airflow.hooks.tuning_trials import TuningTrials
    from trainyard_airflow.jobs.task_jobs import TaskJobs

log = logging.getLogger(__name__)


class TuningJobType(JobType):
    """Hyperparameter searches within a budget.

    See `TuneHyperparametersOperator` for the fields that a spec may omit.

    Args:
        jobs: the task's jobs.
        given: the spec or a mapping of its fields.
        trials_uri: S3 address for the table of all trials; None = below the run's prefix.
    """

    def __init__(self, jobs: TaskJobs, given: Any, *, trials_uri: str | None = None) -> None:
        super().__init__(jobs, given)
        self._trials_uri = trials_uri
        self._ended_trials: dict[str, list[Trial]] = {}

    @cached_property
    def spec(self) -> TuningJobSpec:
        """The spec. By default, its training gets the connection's role, and a folder of the run as output path."""
        return self.spec_given(TuningJobSpec)

    def sources(self) -> Sequence[str]:
        """Return the addresses of the trials' channels in S3."""
        return channel_uris(self.spec.training)

    def render(
        self,
        name: str,
        *,
        place: JobPlace,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Upload the code; return the CreateHyperParameterTuningJob request, and the facts `code` and `image_uri`."""
        clients = self.jobs.clients
        image = job_image(self.spec.training, region=clients.region)
        training = self.of_account(self.spec.training, image_uri=image)
        max_runtime_s = place.max_runtime_s or self.spec.max_runtime_s
        spec = replace(self.spec, training=training, max_runtime_s=max_runtime_s)
        code = self.uploaded_code(training)
        request = render_tuning_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.jobs.tags,
            account=self.jobs.account_for(training.role),
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image}

    def destinations(self) -> Sequence[str]:
        """Return the trials' output path."""
        return (self.spec.training.output_path,)

    def place(
        self,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> JobPlace:
        """Return the cost of the earlier searches, and the time limit of the next search if there is a cost cap.

        The highest possible cost of the next search is logged.

        Raises:
            SpecError: there is a budget or a cost cap, but the price of the instances is unknown.
            BudgetExceededError: the cost so far plus the largest cost of one trial exceeds the budget, or the rest
                of the cost cap is too small.
        """
        spec = self.spec
        paid, found = self._paid_usd(earlier), estimate(spec)
        log.info("The search costs at most %s: %s", format_usd(found.total_usd), found.note)
        check_affordable(spec, found, paid_usd=paid)
        if spec.budget_usd is not None and (found.wave_usd or 0.0) > spec.budget_usd - paid:
            log.warning(
                "%s are left of budget_usd: the trials that start together could use it up (%s) before one has ended",
                format_usd(spec.budget_usd - paid),
                format_usd(found.wave_usd),
            )
        return JobPlace(paid_usd=paid, max_runtime_s=self._capped_runtime_s(paid))

    def _capped_runtime_s(self, paid_usd: float) -> int | None:
        """Return the search's time limit in seconds, bounded by the rest of the cost cap; None without a cap.

        Raises:
            SpecError: the price is unknown.
            BudgetExceededError: the rest of the cap is too small.
        """
        spec, cap = self.spec, cap_of(self.spec)
        if cap is None:
            return None
        rate, at_once = training_usd(spec.training, seconds=1), spec.max_parallel_jobs
        left_s = cap.job_limit_s(
            paid_usd=paid_usd,
            usd_per_s=None if rate is None else rate * at_once,
            on=f"{instances_in_words(spec.training)} per trial with max_parallel_jobs {at_once}",
            least_s=MIN_RUNTIME_S,
        )
        longest_s = min(MAX_RUNTIME_S, int(left_s))
        return min(spec.max_runtime_s or longest_s, longest_s)

    def place_of(
        self,
        job: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],
    ) -> JobPlace:
        """Return the `JobPlace` of a submitted search; only its `paid_usd`, the cost of earlier searches, is set."""
        return JobPlace(paid_usd=self._paid_usd(earlier))

    def patience(self, facts: Mapping[str, Any]) -> Patience:
        """Return the limit at which the trigger stops the search: the rest of its budget in USD.

        The result also has the price of a trial per second, from which the trigger derives the cost so far.
        """
        budget, paid = self.spec.budget_usd, float(facts.get("paid_usd") or 0.0)
        ceiling = Ceiling(
            budget_usd=None if budget is None else budget - paid,
            usd_per_s=training_usd(self.spec.training, seconds=1),
        )
        return Patience(ceiling=ceiling)

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return whether the search was stopped at its limit on cost or time, and has a best trial.

        If so, the search's result so far is the task's result.
        """
        is_cut = self._ended_by(snapshot) in {EndedBy.BUDGET, EndedBy.TIME}
        return is_cut and bool(snapshot.final_metrics)

    def completed(self, snapshot: JobSnapshot, result: dict[str, Any]) -> dict[str, Any]:
        """Return the `TuningResult` of the ended search, as a dict; its trials are written to `trials_uri`.

        Raises:
            JobFailedError: no trial has a usable result.
        """
        from trainyard_airflow.hooks.objects import S3Objects

        facts, trials = self._tuning.facts(snapshot.name), self._trials(snapshot.name)
        cause = self._ended_by(snapshot)
        trials = with_early_stops(
            trials, was_cut=cause is not EndedBy.SERVICE or facts.has_criteria
        )
        table = trial_table(trials, maximize=facts.maximize, now=snapshot.ended_at or time.time())
        log.info("Search %s, ended by %s:\n%s", snapshot.name, cause, table)
        best = usable_best(snapshot, facts, trials)
        job = self._tuning.job(best.training_job_name)
        uri = self._trials_uri or self._default_trials_uri()
        content = to_parquet(trials, categorical=self.spec.categorical)
        S3Objects(self.jobs.clients.client("s3")).write(uri, content, content_type=PARQUET)
        found = tuning_result(
            self.spec,
            search=snapshot,
            facts=facts,
            trials=trials,
            best=replace(best, model_artifacts=job.model_artifact if job else None),
            ended_by=cause,
            trials_uri=uri,
            earlier_cost_usd=float(result.get("paid_usd") or 0.0),
        )
        log.info(
            "Search %s: best is %s with %s %g, %s",
            snapshot.name,
            best.training_job_name,
            facts.metric_name,
            best.value,
            dict(best.tuned_hyperparameters),
        )
        return found.to_dict()

    def known_error(
        self, snapshot: JobSnapshot, earlier: Sequence[JobSnapshot]
    ) -> TrainingRunError | None:
        """Return the error of a search that used up its budget before a trial had a result; otherwise None."""
        spec = self.spec
        if spec.budget_usd is None or self._ended_by(snapshot) is not EndedBy.BUDGET:
            return None
        paid = self._paid_usd([*earlier, snapshot])
        return BudgetExceededError(
            f"the budget of search {snapshot.name} was used up before a trial had a result",
            budget_usd=spec.budget_usd,
            needed_usd=paid,
            where=f"job {snapshot.name}",
            got=f"{format_usd(paid)} spent",
            allowed=f"{format_usd(spec.budget_usd)} for all attempts of the task",
            next_step="raise budget_usd, lower max_parallel_jobs, or make the trials shorter",
        )

    def billed(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Return the search with the billed seconds of all its trials."""
        seconds = sum(each.billable_seconds or 0.0 for each in self._trials(snapshot.name))
        return replace(snapshot, billable_seconds=round(seconds))

    def telling_log(self, name: str) -> Sequence[str]:
        """Return the last log lines of a failed trial, or of the last trial if none failed.

        The lines are those of a trial, because the search itself writes no log.
        """
        trials = self._tuning.trials(name)
        telling = [each for each in trials if each.status == JobStatus.FAILED] or trials[-1:]
        return self._log_of_children(
            (each.training_job_name, each.failure_reason) for each in reversed(telling)
        )

    @cached_property
    def _tuning(self) -> TuningTrials:
        from trainyard_airflow.hooks.tuning_trials import TuningTrials

        return TuningTrials(self.jobs.clients)

    def _trials(self, name: str) -> list[Trial]:
        """Return the trials of an ended search; they are read once, because they are final."""
        if name not in self._ended_trials:
            rate = training_usd(self.spec.training, seconds=1)
            self._ended_trials[name] = self._tuning.trials(name, usd_per_s=rate)
        return self._ended_trials[name]

    def _ended_by(self, snapshot: JobSnapshot) -> EndedBy:
        is_stopped = snapshot.status == JobStatus.STOPPED
        cause = self.jobs.service.stop_cause(snapshot.arn) if is_stopped else None
        return ended_by(snapshot, cause)

    def _paid_usd(self, earlier: Sequence[JobSnapshot]) -> float:
        """Return the cost of the task's earlier searches in USD; 0 if the spec has neither budget nor cap."""
        if self.spec.budget_usd is None and self.spec.max_cost_usd is None:
            return 0.0
        ceiling = Ceiling(usd_per_s=training_usd(self.spec.training, seconds=1))
        costs = (
            spent_usd(self._trials(each.name), ceiling=ceiling, now=each.ended_at or 0.0)
            for each in earlier
        )
        return sum(each or 0.0 for each in costs)

    def _default_trials_uri(self) -> str:
        index = self.jobs.task.map_index
        mapped = "" if index < 0 else f"{index}/"
        return f"{self.jobs.run_uri}/tuning/{mapped}trials.parquet"
