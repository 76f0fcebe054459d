"""`SageMakerJobOperator`: render the request, submit or re-attach, wait, return the job's snapshot."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from trainyard.errors import (
    CapacityError,
    InfrastructureError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    error_from_dict,
)
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard_airflow.hooks.redaction import redacted
from trainyard_airflow.operators.attempts import NextAction, Standing, find_standing
from trainyard_airflow.operators.job_ending import EndingJobTask
from trainyard_airflow.operators.ownership import check_own_job
from trainyard_airflow.operators.task_memory import TaskMemory
from trainyard_airflow.triggers.pace import backoff_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard_airflow.operators.quota_wait import QuotaWait

_MOST_SUBMITS = 5


class SageMakerJobOperator(EndingJobTask):
    """Runs one SageMaker job per task, however often the task itself is started.

    The job's name is derived from DAG, run, task, map index and attempt. A start looks at the service first: a
    running job is re-attached, a completed one is the result (clearing a finished task pays nothing; to train
    again start a new run), a failed or stopped one is followed by the next attempt. One start creates at most one
    job, so `retries` bounds what is paid; `trainyard.retry_table` says which errors are retried. If the spec
    has a capacity ladder, a job that got no capacity is followed by one on the next rung in the same start: at
    most as many jobs as there are rungs, each within the spec's budget.

    Args:
        spec: the job: a spec object, a mapping of its fields (templated), or a function `(context, jinja_env)`
            that returns either.
        deferrable: wait in the triggerer, without a worker slot.
        poll_interval_s: longest time between two looks at the job; young jobs are looked at more often. A full quota
            is asked for again after so long, then after twice as long, up to 5 minutes.
        stream_logs: whether the log lines of all hosts appear in the task's log.
        aws_conn_id: the connection; its extra's `trainyard` names bucket and role.
        region_name: overrides the connection's region, for every service.
        verify: overrides the connection's TLS verification.
        botocore_config: overrides the connection's client settings.
        notifier: whom to tell of spot interruptions, as `Notifier.to_dict` or its JSON; None tells nobody.
    """

    @abstractmethod
    def render(
        self, context: Context, *, name: str, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result (code, image)."""

    def destinations(self, context: Context) -> Sequence[str]:  # noqa: ARG002
        """Return the S3 prefixes that the job would write to: a job that writes elsewhere is not this task's."""
        return ()

    def create(self, request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Create the job of a rendered request; return the facts about it that came out otherwise."""
        self.jobs.create(request)
        return {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the snapshot of the completed job, with `job_name`, `attempt` and `earlier_attempts`.

        Raises:
            SpecError: the spec or the connection is wrong; nothing was started.
            RejectedRequestError: the service refused the job, or its name is another deployment's.
            JobFailedError: the job ended otherwise than `Completed`; its class says why.
            CapacityError: the service had no instances.
        """
        return self._run(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the snapshot of the job that ended, or raise what the trigger found.

        Raises:
            TrainingRunError: the job did not complete, or could not be followed.
        """
        if "error" in event:
            error = error_from_dict(event["error"])
            raise error
        return self._ended(
            context,
            self._snapshot_of(event),
            event.get("facts", {}),
            was_attached=bool(event.get("was_attached")),
        )

    def _snapshot_of(self, event: Mapping[str, Any]) -> JobSnapshot:
        """Return the ended job of a trigger's event; triggers of version 0 sent the snapshot itself.

        Raises:
            InfrastructureError: the service does not know the job any more.
        """
        if "snapshot" in event:
            return JobSnapshot.from_dict(event["snapshot"])
        name = event["job"]["name"]
        snapshot = self.jobs.describe(name)
        if snapshot is None:
            raise InfrastructureError(
                "the service no longer knows the job that ended", job_name=name
            )
        return snapshot

    def _run(self, context: Context, quota: QuotaWait | None = None) -> dict[str, Any]:
        """Take the task's job on, and stop it wherever `execution_timeout` interrupts that.

        Raises:
            TimeLimitError: it did.
            AirflowTaskTimeout: likewise, before there was a job.
        """
        try:
            return self._take_on(context, quota)
        except AirflowTaskTimeout:
            if self._waiting_for is None:
                raise
            self._time_out(self._waiting_for)

    def _take_on(self, context: Context, quota: QuotaWait | None) -> dict[str, Any]:
        submits = 0
        while True:
            standing = self._standing(context)
            name = self.name_of(context, standing.attempt)
            if standing.snapshot is not None:
                check_own_job(
                    standing.snapshot,
                    destinations=self.destinations(context),
                    tags=self.jobs.tags_known(standing.snapshot.arn),
                    deployment=self.clients.deployment,
                )
            match standing.step:
                case NextAction.ADOPT | NextAction.REPORT:
                    assert standing.snapshot is not None  # noqa: S101  # both steps carry one
                    self.log.info("Job %s has ended already: %s", name, standing.snapshot.status)
                    return self._ended(context, standing.snapshot, self._facts(context, standing))
                case NextAction.AWAIT_END:
                    self.log.info("Job %s is stopping: the next attempt starts after it", name)
                    self._await_end(context, name)
                case NextAction.ATTACH:
                    self.log.info("Job %s runs already: waiting for it", name)
                    facts = self._facts(context, standing)
                    return self._wait(context, name, facts, was_attached=True)
                case NextAction.SUBMIT:
                    place = self._placed(context, standing, quota)
                    try:
                        submitted = self._submit(context, name, place)
                    except (QuotaExceededError, CapacityError) as refusal:
                        longest_s = self.max_quota_wait_s(context)
                        quota = self._await_quota(
                            context, place, name, quota, refusal, longest_s=longest_s
                        )
                        continue
                    except QuotaTooSmallError as refusal:
                        quota = self._leave_rung(place, quota, refusal)
                        continue
                    if submitted is not None:
                        facts = {"attempt": standing.attempt, **place, **submitted}
                        return self._wait(context, name, facts)
                    submits += 1
                    self._pause_before_submit(name, submits)

    def _placed(
        self, context: Context, standing: Standing, quota: QuotaWait | None
    ) -> dict[str, Any]:
        full_rungs = quota.full_rungs if quota else ()
        place = self.place(context, standing.earlier, full_rungs=full_rungs)
        if "rung" in place:
            self.log.info(
                "Attempt %d on rung %d, %s: %s",
                standing.attempt,
                place["rung"],
                place["rung_name"],
                place["rung_reason"],
            )
        waited_s = None if quota is None else time.time() - quota.began_at
        return {**place, **({} if waited_s is None else {"quota_waited_s": round(waited_s, 1)})}

    def _resume_too_late(self, context: Context) -> dict[str, Any]:
        """Return the result of a job that ended just before `execution_timeout`; stop one that did not.

        Raises:
            TimeLimitError: the job had not ended.
        """
        standing = self._standing(context)
        snapshot, facts = standing.last, self._facts(context, standing)
        if snapshot is None:
            self._time_out(self.name_of(context, standing.attempt))
        if standing.step not in {NextAction.ADOPT, NextAction.REPORT}:
            self.announce(context, snapshot.name, TaskMemory(context).facts_of(snapshot.name))
            self._time_out(snapshot.name)
        return self._ended(context, snapshot, facts)

    def _facts(self, context: Context, standing: Standing) -> dict[str, Any]:
        noted = TaskMemory(context).facts_of(self.name_of(context, standing.attempt))
        job = standing.snapshot
        place = self.place_of(context, job, standing.earlier) if job else {}
        return {"attempt": standing.attempt, **place, **noted}

    def _standing(self, context: Context) -> Standing:
        return find_standing(
            lambda attempt: self.jobs.describe(self.name_of(context, attempt)),
            reported=self._reported(context),
            hands_on=self.hands_on,
        )

    def _reported(self, context: Context) -> int | None:
        """Return the last attempt whose failure Airflow has seen, 0 for none; None when no store tells."""
        return TaskMemory(context).reported_attempt

    def _submit(
        self, context: Context, name: str, place: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Create the job and return its facts; None when a job of this name appeared meanwhile.

        Raises:
            JobStoppedError: the task was killed while the request was made ready; nothing was created.
            RejectedRequestError: the service refused, for its quota (QuotaExceededError) or for good: nothing there.
            CapacityError: it has no such instances; nothing was created.
        """
        from trainyard_airflow.hooks.jobs import NameTakenError

        request, facts = self.render(context, name=name, place=place)
        self.log.info("Submitting job %s: %s", name, redacted(request))
        if self._is_killed:
            raise JobStoppedError("the task was killed before its job was created", job_name=name)
        self.note_intent(context, name)
        self._waiting_for = name
        try:
            facts = {**facts, **self.create(request, facts)}
        except NameTakenError:
            self.log.info("Job %s appeared meanwhile", name)
            return None
        except (RejectedRequestError, CapacityError):
            self._waiting_for = None
            self.note_refusal(context, name)
            raise
        return facts

    def _pause_before_submit(self, name: str, submits: int) -> None:
        """Wait a moment, so that a job whose name is taken can be described.

        Raises:
            RejectedRequestError: it could not, several times.
        """
        if submits >= _MOST_SUBMITS:
            raise RejectedRequestError(
                "the service refuses the job's name as taken, and describes no job of that name",
                operation=f"Create{self.api.noun}",
                code="ResourceInUse",
                where=f"job {name}",
                got=f"{submits} refusals",
                next_step="look for the job in the console; check the connection's region and its "
                f"permission for Describe{self.api.noun}",
            )
        time.sleep(backoff_s(submits))
