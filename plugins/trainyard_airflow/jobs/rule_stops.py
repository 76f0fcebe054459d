"""Reader of rule stops (stops of jobs by rules).

It uses the jobs' tags, the evidence in S3, and the jobs' checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.job_status import JobStatus
from trainyard.rules.rule import RuleAction
from trainyard.rules.rule_retry import RetryRemedy
from trainyard.rules.training_log import divergence_of
from trainyard.sagemaker_api.rule_stop import RuleStop, remedy_of, service_stop
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.jobs.rule_retry import EarlierStop, checkpoints_in
from trainyard_airflow.triggers.rule_findings import document_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.task_jobs import TaskJobs


@dataclass(frozen=True, slots=True)
class RuleStops:
    """Reader of the rule stops of one task's jobs; a rule stop is the stop of a job by a rule."""

    jobs: TaskJobs

    def of(self, snapshot: JobSnapshot) -> tuple[RuleStop, str] | None:
        """Return (stop, evidence) of a job that a rule stopped, or None for any other job.

        The evidence is that of the service's Debugger; it is empty for Trainyard's rules.
        """
        if snapshot.status != JobStatus.STOPPED:
            return None
        service = service_stop(snapshot.rule_evaluations)
        if service is not None:
            return service
        stop = RuleStop.from_tags(self.jobs.service.tags(snapshot.arn))
        return None if stop is None else (stop, "")

    def earlier(self, name: str, *, is_verdict: bool, asks: bool) -> EarlierStop | None:
        """Return the stop of a job that a rule stopped, or that its own script stopped at a non-finite value.

        The result is None if the job does not exist, or was not stopped in either way.

        Args:
            name: name of the job.
            is_verdict: whether the stop was the task's result. It is stored in the returned object.
            asks: whether the task asks a human after a stop. If so, the returned object has the remedy that a human
                chose, or None if nobody chose. Otherwise the remedy is not looked up, and is None.
        """
        job = self.jobs.service.describe(name)
        if job is None:
            return None
        found, diverged = self.of(job), divergence_of(job.failure_reason)
        if not found and not diverged:
            return None
        return EarlierStop(
            step=found[0].step if found else (diverged or (None,))[0],
            onset=found[0].onset if found else None,
            chosen=self.chosen(job) if asks else None,
            checkpoints=str(job.checkpoint_s3_uri),
            is_verdict=is_verdict,
        )

    def chosen(self, job: JobSnapshot) -> RetryRemedy | None:
        """Return the remedy that a human chose for a stopped job; None if nobody chose."""
        chosen = remedy_of(self.jobs.service.tags(job.arn))
        return None if chosen is None else RetryRemedy(chosen)

    def evidence(self, snapshot: JobSnapshot) -> str:
        """Return why a rule of Trainyard stopped the job, as text; empty if no reason is recorded.

        The triggerer recorded it in S3, in the document with the results of the job's rules (`document_uri`).
        """
        objects = S3Objects(self.jobs.clients.client("s3"))
        document: Mapping[str, Any] = objects.json_or_none(document_uri(snapshot)) or {}
        return str((document.get("stopped_by") or {}).get("evidence", ""))

    def verdict(self, snapshot: JobSnapshot, stop: RuleStop, evidence: str) -> dict[str, Any]:
        """Return the verdict on a job that a rule stopped, as a member of the task's result.

        `last_checkpoint` is the job's last complete checkpoint, or None without one.
        """
        found = checkpoints_in(self.jobs.clients.client("s3"), snapshot.checkpoint_s3_uri)
        return {
            "rule": stop.rule,
            "step": stop.step,
            "action": RuleAction.FAIL if stop.fails else RuleAction.STOP,
            "evidence": evidence,
            "last_checkpoint": found[max(found)] if found else None,
            "rules_uri": document_uri(snapshot),
        }
