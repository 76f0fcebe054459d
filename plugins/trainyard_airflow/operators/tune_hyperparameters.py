"""`TuneHyperparametersOperator`: one search by SageMaker's Automatic Model Tuning, and its winner handed on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import BudgetExceededError
from trainyard.planning.pool_slots import PoolDemand
from trainyard.sagemaker_api.names import run_slug
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.sagemaker_api.tuning_snapshot import with_early_stops
from trainyard.specs.tuning_job import TuningJobSpec
from trainyard.tuning.ceiling import Ceiling, check_affordable, estimate, spent_usd, usd_per_s
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trial_table import trial_table
from trainyard.tuning.trials import to_parquet
from trainyard.units import format_usd
from trainyard_airflow.operators.job import SageMakerJobOperator
from trainyard_airflow.operators.job_code import job_image, training_code
from trainyard_airflow.operators.tune_hyperparameters_result import (
    ended_by,
    tuning_result,
    usable_best,
)
from trainyard_airflow.triggers.watch import Patience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from trainyard.tuning.trials import Trial
    from trainyard_airflow.hooks.tuning_trials import TuningTrials

PARQUET = "application/vnd.apache.parquet"


class TuneHyperparametersOperator(SageMakerJobOperator):
    """Searches good hyperparameters under a ceiling; see `SageMakerJobOperator` for what a retry, clear and kill do.

    The search's trials are told as a table in the task's log whenever there is news of one. A search that crosses its
    `budget_usd` or its time is stopped, and the best so far is the result, marked by `is_complete` and `ended_by`; one
    that a person stops fails the task. A worker that is lost finds its search again by its name, also one that the
    budget has ended meanwhile; a cleared task ends its search and begins another, on what is left of the budget.

    Trials run without an entrypoint of Trainyard's (`TuningJobSpec` says what that means for a stop), and the service
    gives each one its own checkpoint prefix below `training.checkpoint_s3_uri`.

    A spec given as a mapping may leave out the training's `role` and `output_path`: the connection's execution role and
    `<root>/runs/<dag>/<run>/tuning/output` take their places.

    Args:
        spec: see `SageMakerJobOperator`; of `TuningJobSpec`.
        trials_uri: where the table of all trials is written as Parquet; below the run's folder when absent, in
            `tuning/trials.parquet`, of a mapped task in `tuning/<map index>/trials.parquet`. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "trials_uri")
    job_kind: ClassVar[str] = "tuning"
    custom_operator_name: ClassVar[str] = PoolDemand.SEARCH.value
    ui_color = "#f3ecfa"

    def __init__(self, *, spec: Any, trials_uri: str | None = None, **kwargs: Any) -> None:
        # A search has no log of its own, and the lines of all its trials would be nobody's to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.trials_uri = trials_uri
        self._ended_trials: dict[str, list[Trial]] = {}

    def render(
        self,
        context: Context,
        *,
        name: str,
        place: Mapping[str, Any],  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateHyperParameterTuningJob request, the code uploaded, and the facts `code` and `image_uri`."""
        spec, clients = self._spec(context), self.clients
        training = spec.training
        code = training_code(clients, training)
        image = job_image(training, region=clients.region)
        request = render_tuning_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.tags(context),
            account=None if training.role.startswith("arn:") else clients.account,
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image}

    def destinations(self, context: Context) -> Sequence[str]:
        """Return the trials' output path."""
        return (self._spec(context).training.output_path,)

    def place(
        self,
        context: Context,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> dict[str, Any]:
        """Tell what the search after `earlier` can cost, and return what these have cost.

        Raises:
            SpecError: it has a budget, and nobody knows the price of its instances.
            BudgetExceededError: what was paid and what one trial could cost is more than the budget.
        """
        spec = self._spec(context)
        paid, found = self._paid_usd(spec, earlier), estimate(spec)
        self.log.info("The search costs at most %s: %s", format_usd(found.total_usd), found.note)
        check_affordable(spec, found, paid_usd=paid)
        if spec.budget_usd is not None and (found.wave_usd or 0.0) > spec.budget_usd - paid:
            self.log.warning(
                "%s are left of budget_usd: the trials that start together could use it up (%s) before one has ended",
                format_usd(spec.budget_usd - paid),
                format_usd(found.wave_usd),
            )
        return {"paid_usd": paid}

    def place_of(
        self,
        context: Context,
        job: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        """Return what the searches before this one have cost."""
        return {"paid_usd": self._paid_usd(self._spec(context), earlier)}

    def patience(self, context: Context, facts: Mapping[str, Any]) -> Patience:
        """Return what the search may still cost, and how long it may last."""
        spec = self._spec(context)
        budget, paid = spec.budget_usd, float(facts.get("paid_usd") or 0.0)
        ceiling = Ceiling(
            budget_usd=None if budget is None else budget - paid,
            usd_per_s=usd_per_s(spec.training),
            max_runtime_s=spec.max_runtime_s,
        )
        return Patience(ceiling=ceiling)

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return whether the search was stopped at its ceiling and has a best so far."""
        is_cut = self._ended_by(snapshot) in {EndedBy.BUDGET, EndedBy.TIME}
        return is_cut and bool(snapshot.final_metrics)

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return the `TuningResult` of the ended search, as a dict; its trials are written to `trials_uri`.

        Raises:
            JobFailedError: no trial came to a usable result.
        """
        from trainyard_airflow.hooks.objects import S3Objects

        spec, search = self._spec(context), JobSnapshot.from_dict(result)
        facts, trials = self._tuning.facts(search.name), self._trials(search.name, spec)
        cause = self._ended_by(search)
        trials = with_early_stops(
            trials, was_cut=cause is not EndedBy.SERVICE or facts.has_criteria
        )
        table = trial_table(trials, maximize=facts.maximize, now=search.ended_at or time.time())
        self.log.info("Search %s, ended by %s:\n%s", search.name, cause, table)
        best = usable_best(search, facts, trials)
        job = self._tuning.job(best.training_job_name)
        uri = self.trials_uri or self._default_trials_uri(context)
        content = to_parquet(trials, categorical=spec.categorical)
        S3Objects(self.clients.client("s3")).write(uri, content, content_type=PARQUET)
        found = tuning_result(
            spec,
            search=search,
            facts=facts,
            trials=trials,
            best=replace(best, model_artifacts=job.model_artifact if job else None),
            ended_by=cause,
            trials_uri=uri,
            earlier_cost_usd=float(result.get("paid_usd") or 0.0),
        )
        self.log.info(
            "Search %s: best is %s with %s %g, %s",
            search.name,
            best.training_job_name,
            facts.metric_name,
            best.value,
            dict(best.tuned_hyperparameters),
        )
        return found.to_dict()

    def note_end(self, context: Context, snapshot: JobSnapshot) -> None:
        """Note in the run's ledger how the search ended, and what its trials cost together."""
        if self._ledger(context) is None:
            return
        with self._bearing_ledger_faults():
            trials = self._trials(snapshot.name, self._spec(context))
            seconds = round(sum(each.billable_seconds or 0.0 for each in trials))
            # Within: an entry without its cost must not pass for settled.
            super().note_end(context, replace(snapshot, billable_seconds=seconds))

    @cached_property
    def _tuning(self) -> TuningTrials:
        from trainyard_airflow.hooks.tuning_trials import TuningTrials

        return TuningTrials(self.clients)

    def _trials(self, name: str, spec: TuningJobSpec) -> list[Trial]:
        """Return the trials of a search that has ended: they change no more."""
        if name not in self._ended_trials:
            rate = usd_per_s(spec.training)
            self._ended_trials[name] = self._tuning.trials(name, usd_per_s=rate)
        return self._ended_trials[name]

    def _ended_by(self, snapshot: JobSnapshot) -> EndedBy:
        cause = self.jobs.stop_cause(snapshot.arn) if snapshot.status == "Stopped" else None
        return ended_by(snapshot, cause)

    def _paid_usd(self, spec: TuningJobSpec, earlier: Sequence[JobSnapshot]) -> float:
        """Return what earlier searches of the task have cost; only a budget asks for it."""
        if spec.budget_usd is None:
            return 0.0
        ceiling = Ceiling(usd_per_s=usd_per_s(spec.training))
        costs = (
            spent_usd(self._trials(each.name, spec), ceiling=ceiling, now=each.ended_at or 0.0)
            for each in earlier
        )
        return sum(each or 0.0 for each in costs)

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        if self._ended_by(snapshot) is not EndedBy.BUDGET:
            return super()._failed(context, snapshot, result, earlier)
        spec = self._spec(context)
        paid = self._paid_usd(spec, [*earlier, snapshot])
        raise BudgetExceededError(
            f"the budget of search {snapshot.name} was used up before a trial had a result",
            budget_usd=spec.budget_usd or 0.0,
            needed_usd=paid,
            where=f"job {snapshot.name}",
            got=f"{format_usd(paid)} spent",
            allowed=f"{format_usd(spec.budget_usd)} together",
            next_step="raise budget_usd, lower max_parallel_jobs, or let a trial take less",
        )

    def _telling_log(self, name: str) -> Sequence[str]:
        """Return the last lines of a failed trial, else of the last one: a search has no log of its own."""
        trials = self._tuning.trials(name)
        telling = [each for each in trials if each.status == "Failed"] or trials[-1:]
        return self._telling_log_of(
            (each.training_job_name, each.failure_reason) for each in reversed(telling)
        )

    def _default_trials_uri(self, context: Context) -> str:
        index = context["ti"].map_index
        mapped = "" if index is None or index < 0 else f"{index}/"
        return f"{self._run_uri(context)}/tuning/{mapped}trials.parquet"

    def _run_uri(self, context: Context) -> str:
        ti = context["ti"]
        return f"{self.clients.root}/runs/{ti.dag_id}/{run_slug(ti.run_id)}"

    def _spec(self, context: Context) -> TuningJobSpec:
        given = self.spec
        if isinstance(given, TuningJobSpec):
            return given
        training = given.get("training")
        if isinstance(training, Mapping):
            training = {**training, "role": self.clients.execution_role(training.get("role"))}
            if not training.get("output_path"):
                training["output_path"] = f"{self._run_uri(context)}/tuning/output"
            given = {**given, "training": training}
        return TuningJobSpec.from_mapping(given, where="spec")
