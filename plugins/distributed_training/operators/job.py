"""`SageMakerJobOperator`: render the request, submit or re-attach, wait, return the job's snapshot."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import (
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferralTimeout,
)

from distributed_training.links import JOB_LINKS, LINKS_XCOM_KEY, job_links
from distributed_training.operators.attempts import Standing, Step, find_standing
from distributed_training.operators.redaction import redacted, spec_secrets
from distributed_training.operators.task_memory import TaskMemory
from distributed_training.retry_policy import TrainingRetryPolicy
from include.errors import TimeLimitError, error_from_dict
from include.sagemaker_api.failures import failure_error
from include.sagemaker_api.names import job_name
from include.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jinja2
    from airflow.sdk import Context

    from distributed_training.hooks.aws_clients import AwsClients
    from distributed_training.hooks.jobs import SageMakerJobs
    from distributed_training.triggers.follow import Followed

JOB_XCOM_KEY = "job_name"
FAILED_JOB_XCOM_KEY = "failed_job"


class SageMakerJobOperator(BaseOperator):
    """Runs one SageMaker job per task, however often the task itself is started.

    The job's name is derived from DAG, run, task, map index and attempt. A start looks at the
    service first: a running job is re-attached, a completed one is the result (clearing a finished
    task pays nothing; to train again start a new run), a failed or stopped one is followed by the
    next attempt. One start creates at most one job, so `retries` bounds what is paid; which errors
    are retried stands in `include.errors.RETRY_TABLE`.

    Args:
        spec: the job: a spec object, a mapping of its fields (templated), or a function `(context,
            jinja_env)` that returns either.
        deferrable: wait in the triggerer, without a worker slot.
        poll_interval_s: longest time between two looks at the job; young jobs are looked at more
            often.
        stream_logs: whether the log lines of all hosts appear in the task's log.
        aws_conn_id: the connection; its extra's `trainyard` names bucket and role.
        region_name: overrides the connection's region, for every service.
        verify: overrides the connection's TLS verification.
        botocore_config: overrides the connection's client settings.
    """

    template_fields: Sequence[str] = ("spec", "aws_conn_id", "region_name")
    template_fields_renderers: ClassVar[dict[str, str]] = {"spec": "json"}
    operator_extra_links = JOB_LINKS
    job_kind: ClassVar[str]
    start_from_trigger = False

    def __init__(
        self,
        *,
        spec: Any,
        deferrable: bool = True,
        poll_interval_s: float = 15.0,
        stream_logs: bool = True,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        verify: bool | str | None = None,
        botocore_config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retry_policy", TrainingRetryPolicy())
        super().__init__(**kwargs)
        self.spec = spec
        self.deferrable = deferrable
        self.poll_interval_s = poll_interval_s
        self.stream_logs = stream_logs
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.verify = verify
        self.botocore_config = botocore_config
        self.links: dict[str, str] = {}
        self._waiting_for: str | None = None

    @abstractmethod
    def render(self, context: Context, *, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result (code, inputs)."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the snapshot of the completed job, with `job_name`, `attempt` and `earlier_attempts`.

        Raises:
            SpecError: the spec or the connection is wrong; nothing was started.
            RejectedRequestError: the service refused the job.
            JobFailedError: the job ended otherwise than `Completed`; its class says why.
            CapacityError: the service had no instances.
        """
        while True:
            standing = self._standing(context)
            name = self._name(context, standing.attempt)
            facts = {"attempt": standing.attempt, **TaskMemory(context).facts_of(name)}
            match standing.step:
                case Step.ADOPT | Step.REPORT:
                    assert standing.snapshot is not None  # noqa: S101  # both steps carry one
                    self.log.info("Job %s has ended already: %s", name, standing.snapshot.status)
                    return self._ended(context, standing.snapshot, facts)
                case Step.AWAIT_END:
                    self.log.info("Job %s is stopping: the next attempt starts after it", name)
                    self._await_end(name)
                    continue
                case Step.ATTACH:
                    self.log.info("Job %s runs already: waiting for it", name)
                case Step.SUBMIT:
                    submitted = self._submit(context, name)
                    if submitted is None:
                        continue
                    facts |= submitted
            return self._wait(context, name, facts)

    def execute_again(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Continue after a stopping job has ended: the trigger's event says no more than that."""
        return self.execute(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the snapshot that the trigger saw last, or raise what it found.

        Raises:
            TrainingRunError: the job did not complete, or could not be followed.
        """
        if "error" in event:
            raise error_from_dict(event["error"])
        return self._ended(context, JobSnapshot.from_dict(event["snapshot"]), event["facts"])

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume after a deferral; stop the job where `execution_timeout` ended it.

        Airflow calls no method of the operator when a deferral times out or its trigger dies, so
        both are met here, where they arrive as exceptions.

        Raises:
            TimeLimitError: the task's `execution_timeout` has passed; the job was stopped.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            attempt = self._standing(context).attempt
            self._announce(context, self._name(context, attempt), {"attempt": attempt})
            self._time_out(self._name(context, attempt))
        except TaskDeferralError as error:
            self.log.warning("The trigger failed (%s): waiting in the worker instead", error)
            self.deferrable = False
            return self.execute(context)

    def render_template_fields(
        self, context: Context, jinja_env: jinja2.Environment | None = None
    ) -> None:
        """Render the templates, or call the function, and keep the spec's secrets out of every log and page."""
        from airflow.sdk.log import mask_secret

        super().render_template_fields(context, jinja_env)
        for secret in spec_secrets(self.spec):
            mask_secret(secret)

    def on_kill(self) -> None:
        """Stop the job that this process waits for: marked, cleared, or the worker is shut down."""
        if self._waiting_for is not None:
            self.log.warning("Task was killed: stopping job %s", self._waiting_for)
            self.jobs.stop(self._waiting_for)

    @cached_property
    def clients(self) -> AwsClients:
        """The connection's clients."""
        from distributed_training.hooks.aws_clients import AwsClients

        return AwsClients(self._followed("").connection)

    @cached_property
    def jobs(self) -> SageMakerJobs:
        """The service's jobs of this kind."""
        from distributed_training.hooks.job_kinds import JobKind
        from distributed_training.hooks.jobs import SageMakerJobs

        return SageMakerJobs(self.clients, JobKind(self.job_kind))

    def _standing(self, context: Context) -> Standing:
        return find_standing(
            lambda attempt: self.jobs.describe(self._name(context, attempt)),
            reported=TaskMemory(context).reported_attempt,
        )

    def _submit(self, context: Context, name: str) -> dict[str, Any] | None:
        """Create the job and return its facts; None when a job of this name appeared meanwhile."""
        from distributed_training.hooks.jobs import NameTakenError

        request, facts = self.render(context, name=name)
        self.log.info("Submitting job %s: %s", name, redacted(request))
        self._waiting_for = name
        try:
            self.jobs.create(request)
        except NameTakenError:
            self.log.info("Job %s appeared meanwhile", name)
            return None
        return facts

    def _wait(self, context: Context, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        self._waiting_for = name
        self._announce(context, name, facts)
        if self.deferrable:
            self._defer(name, method_name=self.execute_complete.__name__, facts=facts)
        return self._ended(context, self._follow(name), facts)

    def _await_end(self, name: str) -> None:
        if self.deferrable:
            self._defer(name, method_name=self.execute_again.__name__)
        self._follow(name)

    def _defer(
        self, name: str, *, method_name: str, facts: dict[str, Any] | None = None
    ) -> NoReturn:
        from distributed_training.triggers.job import JobTrigger

        self.defer(
            trigger=JobTrigger(**self._followed(name).to_dict(), facts=facts),
            method_name=method_name,
            timeout=self.execution_timeout,
        )

    def _follow(self, name: str) -> JobSnapshot:
        """Return the job's final snapshot, waiting in this process by the trigger's own code."""
        from distributed_training.triggers.follow import follow_job

        try:
            return asyncio.run(follow_job(self._followed(name)))
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
        self, context: Context, snapshot: JobSnapshot, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the completed job's result; raise the error of any other end."""
        self._waiting_for = None
        attempt = int(facts["attempt"])
        self._announce(context, snapshot.name, facts, output=snapshot.output_path)
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": self._earlier_attempts(context, attempt),
        }
        if snapshot.succeeded:
            self.log.info("Job %s completed", snapshot.name)
            return result
        TaskMemory(context).note_reported(attempt)
        context["ti"].xcom_push(key=FAILED_JOB_XCOM_KEY, value=result)
        raise failure_error(
            snapshot, log_hint=f"log group {self._api.log_group}, above in this log"
        )

    def _earlier_attempts(self, context: Context, attempt: int) -> list[dict[str, Any]]:
        names = (self._name(context, number) for number in range(1, attempt))
        return [found.to_dict() for name in names if (found := self.jobs.describe(name))]

    def _announce(
        self, context: Context, name: str, facts: Mapping[str, Any], *, output: str | None = None
    ) -> None:
        """Tell Airflow which job this task has: XComs, links, task state."""
        TaskMemory(context).note_job(name, facts)
        self.links = job_links(
            job_name=name,
            console_path=self._api.console_path,
            log_group=self._api.log_group,
            output_s3_uri=output,
            region=self.clients.region,
            partition=self.clients.partition,
        )
        context["ti"].xcom_push(key=JOB_XCOM_KEY, value=name)
        context["ti"].xcom_push(key=LINKS_XCOM_KEY, value=self.links)

    @property
    def _api(self) -> Any:
        from distributed_training.hooks.job_kinds import JOB_APIS, JobKind

        return JOB_APIS[JobKind(self.job_kind)]

    def _followed(self, name: str) -> Followed:
        from distributed_training.hooks.aws_clients import ConnectionArguments
        from distributed_training.hooks.job_kinds import JobKind
        from distributed_training.triggers.follow import Followed

        return Followed(
            kind=JobKind(self.job_kind),
            job_name=name,
            poll_interval_s=self.poll_interval_s,
            stream_logs=self.stream_logs,
            connection=ConnectionArguments(
                aws_conn_id=self.aws_conn_id,
                region_name=self.region_name,
                verify=self.verify,
                botocore_config=self.botocore_config,
            ),
        )

    def _name(self, context: Context, attempt: int) -> str:
        ti = context["ti"]
        return job_name(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            attempt=attempt,
        )
