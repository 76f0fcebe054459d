"""`AutoMLJobType`: AutoML jobs (Autopilot)."""

from __future__ import annotations

import json
import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost
from trainyard.errors import ContractError
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.automl_request import render_automl_job
from trainyard.sagemaker_api.automl_snapshot import leaderboard, ranked
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.units import format_duration, format_usd
from trainyard_airflow.jobs.automl_result import automl_result, runtime_ceiling
from trainyard_airflow.jobs.job_place import JobPlace
from trainyard_airflow.jobs.job_type import JobType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates
    from trainyard_airflow.jobs.task_jobs import TaskJobs

log = logging.getLogger(__name__)


class AutoMLJobType(JobType):
    """AutoML jobs; see `AutoMLTabularOperator` for the fields that a spec may omit.

    Args:
        jobs: the task's jobs.
        given: the spec or a mapping of its fields.
        leaderboard_uri: S3 address for all candidates as JSON; None = below the run's prefix.
    """

    def __init__(self, jobs: TaskJobs, given: Any, *, leaderboard_uri: str | None = None) -> None:
        super().__init__(jobs, given)
        self._leaderboard_uri = leaderboard_uri

    @cached_property
    def spec(self) -> AutoMLJobSpec:
        """The spec.

        If it is given as a mapping without a role, it gets the connection's role. If the mapping has no output
        path, the output path is a folder of the run.
        """
        return self.spec_given(AutoMLJobSpec)

    def render(self, name: str, *, place: JobPlace) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateAutoMLJobV2 request, and an empty dict.

        The dict is for facts about the job that become part of the task's result. An AutoML job has none.
        """
        clients = self.jobs.clients
        request = render_automl_job(
            self.of_account(self.spec),
            name=name,
            max_runtime_s=place.max_runtime_s,
            tags=self.jobs.tags,
            region=clients.region,
            account=self.jobs.account_for(self.spec.role),
        )
        return request, {}

    def destinations(self) -> Sequence[str]:
        """Return the job's output path."""
        return (self.spec.output_path,)

    def place(
        self,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> JobPlace:
        """Return the cost of the earlier jobs and the next job's time limit, and log the rest of the budget.

        Raises:
            SpecError: there is a budget, but the price of the instances is unknown.
            BudgetExceededError: the rest of the budget is too small for a useful job.
        """
        spec = self.spec
        paid = self._paid_usd(earlier) if spec.budget_usd is not None else 0.0
        limit_s = runtime_ceiling(spec, paid_usd=paid)
        if limit_s is not None:
            log.info(
                "%s of budget_usd are left: the job may last %s, %d candidates at a time on %s",
                format_usd((spec.budget_usd or 0.0) - paid),
                format_duration(limit_s),
                spec.num_parallel,
                spec.candidate_instance_type,
            )
        return JobPlace(paid_usd=paid, max_runtime_s=limit_s)

    def completed(self, snapshot: JobSnapshot, result: dict[str, Any]) -> dict[str, Any]:
        """Return the task's result with the best candidate, and write the leaderboard to S3.

        Raises:
            ContractError: the completed job has no best candidate.
        """
        facts = self._automl.facts(snapshot.name)
        found = ranked(self._automl.candidates(snapshot.name), maximize=facts.maximize)
        if facts.best is None:
            raise ContractError(
                "the AutoML job completed without a best candidate",
                where=f"job {snapshot.name}",
                next_step="read the job's candidates in the SageMaker console",
            )
        table = leaderboard(found, metric=facts.metric_name, maximize=facts.maximize)
        log.info("AutoML job %s (%s):\n%s", snapshot.name, facts.problem_type, table)
        for failure in facts.partial_failures:
            log.warning("AutoML job %s: %s", snapshot.name, failure)
        uri = self._leaderboard_uri or f"{self.jobs.run_uri}/automl/leaderboard.json"
        self._write_leaderboard(uri, found)
        automl = automl_result(
            self.spec,
            job=self._automl.billed(snapshot),
            facts=facts,
            candidates=found,
            leaderboard_uri=uri,
        )
        return {**result, **automl}

    def billed(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Return the AutoML job's snapshot with the billed seconds of all jobs that the AutoML job started."""
        return self._automl.billed(snapshot)

    def telling_log(self, name: str) -> Sequence[str]:
        """Return the last log lines of a failed job that the AutoML job started."""
        failed = [each for each in self._automl.children(name) if each.status == JobStatus.FAILED]
        return self._log_of_children((each.name, each.failure_reason) for each in failed)

    @cached_property
    def _automl(self) -> AutoMLCandidates:
        from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates

        return AutoMLCandidates(self.jobs.clients)

    def _paid_usd(self, earlier: Sequence[JobSnapshot]) -> float:
        """Return the cost of the task's earlier jobs in USD; jobs with an unknown price count as 0."""
        jobs = [job for each in earlier for job in self._automl.children(each.name)]
        return sum(job_cost(job.to_dict()).cost_usd or 0.0 for job in jobs)

    def _write_leaderboard(self, uri: str, found: Sequence[AutoMLCandidate]) -> None:
        from trainyard_airflow.hooks.objects import S3Objects

        document = {"written_at": time.time(), "candidates": [each.to_dict() for each in found]}
        objects = S3Objects(self.jobs.clients.client("s3"))
        objects.write_json(uri, json.dumps(document, indent=1) + "\n")
