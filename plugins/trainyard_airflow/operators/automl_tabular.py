"""`AutoMLTabularOperator`: one AutoML job (Autopilot) over a table, and its best candidate handed on."""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.cost.job_cost import job_cost
from trainyard.errors import ContractError
from trainyard.sagemaker_api.automl_request import render_automl_job
from trainyard.sagemaker_api.automl_snapshot import leaderboard, ranked
from trainyard.sagemaker_api.names import run_slug
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.units import format_duration, format_usd
from trainyard_airflow.operators.automl_tabular_result import automl_result, runtime_ceiling
from trainyard_airflow.operators.job import SageMakerJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate
    from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates


class AutoMLTabularOperator(SageMakerJobOperator):
    """Finds a good model for a table; see `SageMakerJobOperator` for what a retry, a clear and a kill do.

    Its candidates are told as a leaderboard in the task's log whenever there is news of one. A job that its time limit
    ended hands on the best candidate so far, marked by `is_complete` and `ended_by`; one that was stopped fails the
    task. A budget becomes a time limit of the request, so that the service holds it also where no Airflow is left.

    A spec given as a mapping may leave out `role` and `output_path`: the connection's execution role and
    `<root>/runs/<dag>/<run>/automl` take their places.

    Args:
        spec: see `SageMakerJobOperator`; of `AutoMLJobSpec`.
        leaderboard_uri: where all candidates are written as JSON, the best first; `leaderboard.json` below the run's
            folder `automl` when absent. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "leaderboard_uri")
    job_kind: ClassVar[str] = "automl"
    ui_color = "#fdf3e1"

    def __init__(self, *, spec: Any, leaderboard_uri: str | None = None, **kwargs: Any) -> None:
        # An AutoML job has no log of its own, and the lines of all its jobs would be nobody's to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.leaderboard_uri = leaderboard_uri

    def render(
        self, context: Context, *, name: str, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateAutoMLJobV2 request and an empty dict: this operator adds no facts to the result."""
        spec = self._spec(context)
        request = render_automl_job(
            spec,
            name=name,
            max_runtime_s=place.get("max_runtime_s"),
            tags=self.tags(context),
            region=self.clients.region,
            account=None if spec.role.startswith("arn:") else self.clients.account,
        )
        return request, {}

    def destinations(self, context: Context) -> Sequence[str]:
        """Return the job's output path."""
        return (self._spec(context).output_path,)

    def place(
        self,
        context: Context,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> dict[str, Any]:
        """Tell what the job after `earlier` can cost, and return what these have cost and how long it may last.

        Raises:
            SpecError: it has a budget, and nobody knows the price of its instances.
            BudgetExceededError: what is left of the budget buys no useful time.
        """
        spec = self._spec(context)
        paid = self._paid_usd(earlier) if spec.budget_usd is not None else 0.0
        limit_s = runtime_ceiling(spec, paid_usd=paid)
        if limit_s is not None:
            self.log.info(
                "%s of budget_usd are left: the job may last %s, %d candidates at a time on %s",
                format_usd((spec.budget_usd or 0.0) - paid),
                format_duration(limit_s),
                spec.num_parallel,
                spec.candidate_instance_type,
            )
        return {"paid_usd": paid, "max_runtime_s": limit_s}

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return the best candidate and what was found beside it; the leaderboard is written to `leaderboard_uri`.

        Raises:
            ContractError: the service names no best candidate of a job that completed.
        """
        spec, job = self._spec(context), JobSnapshot.from_dict(result)
        facts = self._automl.facts(job.name)
        found = ranked(self._automl.candidates(job.name), maximize=facts.maximize)
        if facts.best is None:
            raise ContractError(
                "an AutoML job completed without a best candidate", where=f"job {job.name}"
            )
        table = leaderboard(found, metric=facts.metric_name, maximize=facts.maximize)
        self.log.info("AutoML job %s (%s):\n%s", job.name, facts.problem_type, table)
        for failure in facts.partial_failures:
            self.log.warning("AutoML job %s: %s", job.name, failure)
        uri = self.leaderboard_uri or f"{self._run_uri(context)}/automl/leaderboard.json"
        self._write_leaderboard(uri, found)
        automl = automl_result(
            spec,
            job=self._automl.billed(job),
            facts=facts,
            candidates=found,
            leaderboard_uri=uri,
        )
        return {**result, **automl}

    def note_end(self, context: Context, snapshot: JobSnapshot) -> None:
        """Note in the run's ledger how the job ended, and what its jobs cost together."""
        if self._ledger(context) is None:
            return
        with self._bearing_ledger_faults():
            # Within: an entry without its cost must not pass for settled.
            super().note_end(context, self._automl.billed(snapshot))

    @cached_property
    def _automl(self) -> AutoMLCandidates:
        from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates

        return AutoMLCandidates(self.clients)

    def _paid_usd(self, earlier: Sequence[JobSnapshot]) -> float:
        """Return what earlier jobs of the task have cost, as far as prices are known."""
        jobs = [job for each in earlier for job in self._automl.children(each.name)]
        return sum(job_cost(job.to_dict()).cost_usd or 0.0 for job in jobs)

    def _write_leaderboard(self, uri: str, found: Sequence[AutoMLCandidate]) -> None:
        from trainyard_airflow.hooks.objects import S3Objects

        document = {"written_at": time.time(), "candidates": [each.to_dict() for each in found]}
        content = (json.dumps(document, indent=1) + "\n").encode()
        S3Objects(self.clients.client("s3")).write(uri, content, content_type="application/json")

    def _telling_log(self, name: str) -> Sequence[str]:
        """Return the last lines of a failed job among those that the AutoML job made."""
        failed = [each for each in self._automl.children(name) if each.status == "Failed"]
        return self._telling_log_of((each.name, each.failure_reason) for each in failed)

    def _run_uri(self, context: Context) -> str:
        ti = context["ti"]
        return f"{self.clients.root}/runs/{ti.dag_id}/{run_slug(ti.run_id)}"

    def _spec(self, context: Context) -> AutoMLJobSpec:
        given = self.spec
        if isinstance(given, AutoMLJobSpec):
            return given
        mapping = {**given, "role": self.clients.execution_role(given.get("role"))}
        if not mapping.get("output_path"):
            mapping["output_path"] = f"{self._run_uri(context)}/automl"
        return AutoMLJobSpec.from_mapping(mapping, where="spec")
