"""`SageMakerJobOperator`: render the request, submit or re-attach, wait, return the job's snapshot."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import (
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferralTimeout,
)

from distributed_training.hooks.redaction import masked, redacted, secret_forms, spec_secrets
from distributed_training.operators.attempts import Standing, Step, find_standing
from distributed_training.operators.job_task import JobTask
from distributed_training.operators.ownership import check_own_job
from distributed_training.operators.task_memory import TaskMemory
from distributed_training.triggers.pace import backoff_s
from include.errors import (
    JobStoppedError,
    RejectedRequestError,
    TimeLimitError,
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


class SageMakerJobOperator(JobTask):
    """Runs one SageMaker job per task, however often the task itself is started.

    The job's name is derived from DAG, run, task, map index and attempt. A start looks at the service first: a
    running job is re-attached, a completed one is the result (clearing a finished task pays nothing; to train
    again start a new run), a failed or stopped one is followed by the next attempt. One start creates at most one
    job, so `retries` bounds what is paid; which errors are retried stands in `include.errors.RETRY_TABLE`.

    Args:
        spec: the job: a spec object, a mapping of its fields (templated), or a function `(context, jinja_env)`
            that returns either.
        deferrable: wait in the triggerer, without a worker slot.
        poll_interval_s: longest time between two looks at the job; young jobs are looked at more often.
        stream_logs: whether the log lines of all hosts appear in the task's log.
        aws_conn_id: the connection; its extra's `trainyard` names bucket and role.
        region_name: overrides the connection's region, for every service.
        verify: overrides the connection's TLS verification.
        botocore_config: overrides the connection's client settings.
    """

    _waiting_for: str | None = None
    _is_killed: bool = False

    @abstractmethod
    def render(self, context: Context, *, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result (code, image)."""

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

    def execute_again(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Continue after a stopping job has ended: the trigger's event says no more than that."""
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

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume after a deferral; stop the job where `execution_timeout` ended it.

        Airflow calls no method of the operator when a deferral times out or its trigger dies, so both are met
        here, where they arrive as exceptions.

        Raises:
            TimeLimitError: the task's `execution_timeout` has passed; the job was stopped.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            return self._resume_too_late(context)
        except TaskDeferralError as error:
            self.log.warning("The trigger failed (%s): waiting in the worker instead", error)
            self.deferrable = False
            return self._run(context)

    def on_kill(self) -> None:
        """Stop the job that this process waits for: marked, cleared, or the worker is shut down.

        Airflow calls this between two steps of `execute` and lets it go on afterwards, so a job that is only about
        to be created is met there, by the note that the task is killed.
        """
        from botocore.exceptions import BotoCoreError

        self._is_killed = True
        if self._waiting_for is None:
            self.log.warning("Task was killed: it has no job to stop")
            return
        self.log.warning("Task was killed: stopping job %s", self._waiting_for)
        try:
            self.jobs.stop(self._waiting_for, is_kill=True)
        except (TrainingRunError, BotoCoreError) as error:
            self.log.error("Job %s could not be stopped: %s", self._waiting_for, error)  # noqa: TRY400

    def _run(self, context: Context) -> dict[str, Any]:
        submits = 0
        while True:
            standing = self._standing(context)
            name = self.name_of(context, standing.attempt)
            facts = self._facts(context, standing)
            if standing.snapshot is not None:
                check_own_job(standing.snapshot, destinations=self.destinations(context))
            match standing.step:
                case Step.ADOPT | Step.REPORT:
                    assert standing.snapshot is not None  # noqa: S101  # both steps carry one
                    self.log.info("Job %s has ended already: %s", name, standing.snapshot.status)
                    return self._ended(context, standing.snapshot, facts)
                case Step.AWAIT_END:
                    self.log.info("Job %s is stopping: the next attempt starts after it", name)
                    self._await_end(name)
                case Step.ATTACH:
                    self.log.info("Job %s runs already: waiting for it", name)
                    return self._wait(context, name, facts, was_attached=True)
                case Step.SUBMIT:
                    submitted = self._submit(context, name)
                    if submitted is not None:
                        return self._wait(context, name, {**facts, **submitted})
                    submits += 1
                    self._pause_before_submit(name, submits)

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
        return {"attempt": standing.attempt, **noted}

    def _standing(self, context: Context) -> Standing:
        return find_standing(
            lambda attempt: self.jobs.describe(self.name_of(context, attempt)),
            reported=TaskMemory(context).reported_attempt,
        )

    def _submit(self, context: Context, name: str) -> dict[str, Any] | None:
        """Create the job and return its facts; None when a job of this name appeared meanwhile.

        Raises:
            JobStoppedError: the task was killed while the request was made ready; nothing was created.
        """
        from distributed_training.hooks.jobs import NameTakenError

        request, facts = self.render(context, name=name)
        self.log.info("Submitting job %s: %s", name, redacted(request))
        if self._is_killed:
            raise JobStoppedError("the task was killed before its job was created", job_name=name)
        self._waiting_for = name
        try:
            self.jobs.create(request)
        except NameTakenError:
            self.log.info("Job %s appeared meanwhile", name)
            return None
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

    def _wait(
        self, context: Context, name: str, facts: dict[str, Any], *, was_attached: bool = False
    ) -> dict[str, Any]:
        self._waiting_for = name
        if self._is_killed:
            self.jobs.stop(name, is_kill=True)
            raise JobStoppedError("the task was killed while its job started", job_name=name)
        self.announce(context, name, facts)
        if self.deferrable:
            self._defer(name, self.execute_complete.__name__, facts, was_attached=was_attached)
        return self._ended(context, self._follow(name), facts, was_attached=was_attached)

    def _await_end(self, name: str) -> None:
        if self.deferrable:
            self._defer(name, self.execute_again.__name__, {})
        self._follow(name)

    def _defer(
        self, name: str, method_name: str, facts: dict[str, Any], *, was_attached: bool = False
    ) -> NoReturn:
        from distributed_training.triggers.job import JobTrigger

        echoed = {"facts": facts, "was_attached": was_attached}
        self.defer(
            trigger=JobTrigger(**self.followed(name).to_dict(), echoed=echoed),
            method_name=method_name,
            timeout=self.execution_timeout,
        )

    def _follow(self, name: str) -> JobSnapshot:
        """Return the job's final snapshot, waiting in this process by the trigger's own code."""
        from distributed_training.triggers.follow import follow_job
        from distributed_training.triggers.interruptible import run_interruptible

        try:
            return run_interruptible(follow_job(self.followed(name)))
        except AirflowTaskTimeout:
            self._time_out(name)

    def _time_out(self, name: str) -> NoReturn:
        limit = self.execution_timeout or timedelta(0)
        was_running = self.jobs.stop(name)
        self._waiting_for = None
        raise TimeLimitError(
            f"the task's execution_timeout of {limit} passed; its job was "
            + ("told to stop" if was_running else "no longer running"),
            job_name=name,
            next_step="raise execution_timeout, or max_run where the job itself shall end earlier",
        )

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
        if was_attached and snapshot.status == "Stopped" and self.jobs.was_killed(snapshot.arn):
            self.log.info("Job %s belonged to a killed try: next attempt", snapshot.name)
            return self._run(context)
        attempt = int(facts["attempt"])
        self.announce(context, snapshot.name, facts, output=snapshot.output_path)
        earlier = [self.jobs.describe(self.name_of(context, each)) for each in range(1, attempt)]
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": [each.to_dict() for each in earlier if each],
        }
        if snapshot.succeeded:
            self.log.info("Job %s completed", snapshot.name)
            return self.completed(context, result)
        TaskMemory(context).note_reported(attempt)
        lines = self._telling_log(snapshot.name)
        failed = {**result, "log_tail": telling_lines(lines)}
        context["ti"].xcom_push(key=FAILED_JOB_XCOM_KEY, value=failed)
        where = f"log group {self.api.log_group}, above in this log"
        error = failure_error(snapshot, log_lines=lines, log_hint=where)
        raise error

    def _telling_log(self, name: str) -> Sequence[str]:
        """Return the last lines of the host whose log names the cause, else of the one that ended last."""
        from distributed_training.hooks.job_logs import last_lines

        ends = last_lines(self.clients.client("logs"), group=self.api.log_group, job_name=name)
        telling = [each for each in ends if tells_cause(each.lines)] or ends[-1:]
        secrets = secret_forms(spec_secrets(self.spec))
        return [masked(line, secrets) for line in telling[0].lines] if telling else ()
