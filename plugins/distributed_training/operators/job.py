"""`SageMakerJobOperator`: render the request, submit or re-attach, wait, return the job's snapshot."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from distributed_training.hooks.redaction import masked, redacted, secret_forms, spec_secrets
from distributed_training.operators.attempts import Standing, Step, find_standing
from distributed_training.operators.job_waiting import QuotaWait, WaitingJobTask
from distributed_training.operators.ownership import check_own_job
from distributed_training.operators.task_memory import TaskMemory
from distributed_training.triggers.pace import backoff_s
from include.cost.job_cost import spot_line
from include.errors import (
    CapacityError,
    JobStoppedError,
    QuotaExceededError,
    RejectedRequestError,
    SpotInterruptionError,
    TrainingRunError,
    error_from_dict,
)
from include.sagemaker_api.failures import failure_error, telling_lines, tells_cause
from include.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

FAILED_JOB_XCOM_KEY = "failed_job"

_MOST_SUBMITS = 5
_LACKS_CAPACITY = (CapacityError, QuotaExceededError, SpotInterruptionError)


class SageMakerJobOperator(WaitingJobTask):
    """Runs one SageMaker job per task, however often the task itself is started.

    The job's name is derived from DAG, run, task, map index and attempt. A start looks at the service first: a
    running job is re-attached, a completed one is the result (clearing a finished task pays nothing; to train
    again start a new run), a failed or stopped one is followed by the next attempt. One start creates at most one
    job, so `retries` bounds what is paid; which errors are retried stands in `include.errors.RETRY_TABLE`. Where the
    spec has a capacity ladder, a job that got no capacity is followed by one on the next rung in the same start: at
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
    """

    @abstractmethod
    def render(
        self, context: Context, *, name: str, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result (code, image)."""

    def place(
        self,
        context: Context,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
        *,
        skip: int = 0,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return on which capacity the job after `earlier` stands, as facts for its result; nothing to choose here.

        Raises:
            BudgetExceededError: the task may not pay for another job.
        """
        return {}

    def place_of(
        self,
        context: Context,  # noqa: ARG002
        job: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the same facts of a job that was submitted already."""
        return {}

    def judged(self, snapshot: JobSnapshot, error: TrainingRunError) -> TrainingRunError:  # noqa: ARG002
        """Return the error of a job that did not complete, told more exactly where there is more to know."""
        return error

    def destinations(self, context: Context) -> Sequence[str]:  # noqa: ARG002
        """Return the S3 prefixes that the job would write to: a job that writes elsewhere is not this task's."""
        return ()

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return what the task returns once its job has completed: the job's result, unless there is more to do."""
        return result

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
        """Return the snapshot that the trigger saw last, or raise what it found.

        Raises:
            TrainingRunError: the job did not complete, or could not be followed.
        """
        if "error" in event:
            error = error_from_dict(event["error"])
            raise error
        snapshot = JobSnapshot.from_dict(event["snapshot"])
        return self._ended(context, snapshot, event["facts"], was_attached=event["was_attached"])

    def _run(self, context: Context, quota: QuotaWait | None = None) -> dict[str, Any]:
        submits = 0
        while True:
            standing = self._standing(context)
            name = self.name_of(context, standing.attempt)
            if standing.snapshot is not None:
                check_own_job(standing.snapshot, destinations=self.destinations(context))
            match standing.step:
                case Step.ADOPT | Step.REPORT:
                    assert standing.snapshot is not None  # noqa: S101  # both steps carry one
                    self.log.info("Job %s has ended already: %s", name, standing.snapshot.status)
                    return self._ended(context, standing.snapshot, self._facts(context, standing))
                case Step.AWAIT_END:
                    self.log.info("Job %s is stopping: the next attempt starts after it", name)
                    self._await_end(name)
                case Step.ATTACH:
                    self.log.info("Job %s runs already: waiting for it", name)
                    facts = self._facts(context, standing)
                    return self._wait(context, name, facts, was_attached=True)
                case Step.SUBMIT:
                    place = self._placed(context, standing, quota)
                    try:
                        submitted = self._submit(context, name, place)
                    except (QuotaExceededError, CapacityError) as refusal:
                        quota = self._await_quota(place, name, quota, refusal)
                        continue
                    if submitted is not None:
                        facts = {"attempt": standing.attempt, **place, **submitted}
                        return self._wait(context, name, facts)
                    submits += 1
                    self._pause_before_submit(name, submits)

    def _placed(
        self, context: Context, standing: Standing, quota: QuotaWait | None
    ) -> dict[str, Any]:
        skip = quota.skipped if quota else 0
        place = self.place(context, standing.earlier, skip=skip)
        if place:
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
        if standing.step not in {Step.ADOPT, Step.REPORT}:
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
            reported=TaskMemory(context).reported_attempt,
        )

    def _submit(
        self, context: Context, name: str, place: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Create the job and return its facts; None when a job of this name appeared meanwhile.

        Raises:
            JobStoppedError: the task was killed while the request was made ready; nothing was created.
            RejectedRequestError: the service refused, for its quota (QuotaExceededError) or for good: nothing there.
            CapacityError: it has no such instances; nothing was created.
        """
        from distributed_training.hooks.jobs import NameTakenError

        request, facts = self.render(context, name=name, place=place)
        self.log.info("Submitting job %s: %s", name, redacted(request))
        if self._is_killed:
            raise JobStoppedError("the task was killed before its job was created", job_name=name)
        self.note_intent(context, name)
        self._waiting_for = name
        try:
            self.jobs.create(request)
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

    def _ended(
        self,
        context: Context,
        snapshot: JobSnapshot,
        facts: dict[str, Any],
        *,
        was_attached: bool = False,
    ) -> dict[str, Any]:
        """Return the completed job's result; raise the error of any other end.

        A job that this start only attached to, and that a kill of the task's earlier try stopped, is no end: a
        cleared task starts again before its old trigger has stopped the old job.
        """
        self._waiting_for = None
        self.note_end(context, snapshot)
        if was_attached and snapshot.status == "Stopped" and self.jobs.was_killed(snapshot.arn):
            self.log.info("Job %s belonged to a killed try: next attempt", snapshot.name)
            return self._run(context)
        attempt = int(facts["attempt"])
        self.announce(context, snapshot.name, facts, output=snapshot.output_path)
        described = (self.jobs.describe(self.name_of(context, each)) for each in range(1, attempt))
        earlier = [each for each in described if each is not None]
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": [
                {**job.to_dict(), **self.place_of(context, job, earlier[:index])}
                for index, job in enumerate(earlier)
            ],
        }
        if line := spot_line(result):
            self.log.info("Job %s: %s", snapshot.name, line)
        if snapshot.succeeded:
            self.log.info("Job %s completed", snapshot.name)
            return self.completed(context, result)
        return self._failed(context, snapshot, result, earlier)

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        """Go on to the next rung where the job got no capacity and there is one; else raise its error."""
        TaskMemory(context).note_reported(int(result["attempt"]))
        lines = self._telling_log(snapshot.name)
        failed = {**result, "log_tail": telling_lines(lines)}
        context["ti"].xcom_push(key=FAILED_JOB_XCOM_KEY, value=failed)
        where = f"log group {self.api.log_group}, above in this log"
        cause = self.jobs.stop_cause(snapshot.arn) if snapshot.status == "Stopped" else None
        error = failure_error(snapshot, log_lines=lines, log_hint=where, stopped_for=cause)
        if isinstance(error, _LACKS_CAPACITY) and result.get("is_last_rung") is False:
            place = self.place(context, [*earlier, snapshot])
            if place["rung"] > result["rung"]:
                self.log.warning("%s", error.what)
                return self._run(context)
        judged = self.judged(snapshot, error)
        raise judged

    def _telling_log(self, name: str) -> Sequence[str]:
        """Return the last lines of the host whose log names the cause, else of the one that ended last."""
        from distributed_training.hooks.job_logs import last_lines

        ends = last_lines(self.clients.client("logs"), group=self.api.log_group, job_name=name)
        telling = [each for each in ends if tells_cause(each.lines)] or ends[-1:]
        secrets = secret_forms(spec_secrets(self.spec))
        return [masked(line, secrets) for line in telling[0].lines] if telling else ()
