"""`SageMakerJobOperator`: base of tasks with a SageMaker job; it executes the steps of `JobRun` in Airflow."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError, TaskDeferralTimeout

from trainyard.errors import ContractError, InfrastructureError, error_from_dict
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.units import format_duration
from trainyard_airflow.hooks.redaction import spec_secrets
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.given_spec import check_given
from trainyard_airflow.jobs.model_trainer import checked_spec
from trainyard_airflow.jobs.quota_wait import QuotaWait
from trainyard_airflow.jobs.steps import AwaitQuota, AwaitStop, Done, Follow
from trainyard_airflow.jobs.task_jobs import TaskJobs, TaskKey
from trainyard_airflow.links import JOB_LINKS, LINKS_XCOM_KEY, job_links
from trainyard_airflow.operators.project import project_folder
from trainyard_airflow.operators.task_state import task_memory
from trainyard_airflow.operators.templates import without_templates
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.triggers.pace import trigger_pause_s
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import jinja2
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from trainyard.runs.notifier import Notifier
    from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
    from trainyard_airflow.jobs.job_run import JobRun
    from trainyard_airflow.jobs.job_type import JobType
    from trainyard_airflow.jobs.steps import Step
    from trainyard_airflow.jobs.task_memory import TaskMemory
    from trainyard_airflow.triggers.followed import Followed

JOB_XCOM_KEY = "job_name"
JOB_CONNECTION_XCOM_KEY = "job_connection"
FAILED_JOB_XCOM_KEY = "failed_job"
_ANSWER_LIMIT_S = 2.0

_SHORTEST_DEFERRAL_S = 2.0


@retried_by_error
class SageMakerJobOperator(BaseOperator):
    """Runs one SageMaker job per task, a training job by default, even if the task is started several times.

    The job's name is derived from DAG, run, task, map index and attempt. Each start first reads the states of
    the task's jobs from the service, and continues accordingly:

    - It re-attaches to a running job.
    - It returns a completed job as the result. Clearing a finished task costs nothing; to train again, start a
      new run.
    - It starts the next attempt after a failed or stopped job.

    One start creates at most one job. With a capacity ladder, it creates at most one job per rung: if a job
    gets no capacity, the same start creates a job on the next rung. Each job is within the spec's budget.
    `retries` therefore bounds the cost; `trainyard.retry_table` lists the errors that are retried.

    Args:
        spec: the job: a spec object, a mapping of its fields (templated), or a function `(context, jinja_env)`
            that returns either.
        deferrable: whether to wait in the triggerer, without a worker slot.
        poll_interval_s: longest time between two polls of the job, in seconds; young jobs are polled more
            often. If the service rejects a Create call for lack of quota, this is also the first pause before
            the next Create call; each further pause is twice as long, up to 5 minutes.
        stream_logs: whether the log lines of all hosts appear in the task's log.
        aws_conn_id: the connection; the key `trainyard` of its extra names bucket and role.
        region_name: overrides the connection's region, for every service.
        verify: overrides the connection's TLS verification.
        botocore_config: overrides the connection's client settings.
        ledger_uri: S3 prefix of the run's ledger; by default a prefix in the connection's bucket. Templated.
        notifier: recipient of messages on spot interruptions: the result of `Notifier.to_dict`, or its JSON,
            or None.
    """

    template_fields: Sequence[str] = (
        "spec",
        "aws_conn_id",
        "region_name",
        "ledger_uri",
        "notifier",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"spec": "json"}
    operator_extra_links = JOB_LINKS
    job_kind: ClassVar[JobKind] = JobKind.TRAINING

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
        ledger_uri: str | None = None,
        notifier: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.spec = checked_spec(spec)
        if not getattr(self, "_BaseOperator__from_mapped", False):  # created at run time otherwise
            known = without_templates(self.spec, self)
            check_given(self.job_kind, known, subject=f"{self.task_type} {self.task_id}")
        self.deferrable = deferrable
        self.poll_interval_s = poll_interval_s
        self.stream_logs = stream_logs
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.verify = verify
        self.botocore_config = botocore_config
        self.ledger_uri = ledger_uri
        self.notifier = notifier
        self.links: dict[str, str] = {}
        self.ended_job: Mapping[str, Any] | None = None
        self._run: JobRun | None = None
        self._host: _AirflowTask | None = None
        self._notifier: Notifier | None = None
        self._is_killed = False
        self._follow_from = 0.0

    def job_type(self, jobs: TaskJobs, context: Context) -> JobType:
        """Return the job type of this operator's kind of job; in this class, that of training jobs."""
        from trainyard_airflow.jobs.training import TrainingJobType

        return TrainingJobType(jobs, self.spec, context=context, mask=self.mask_secrets)

    def end_policy(self, jobs: TaskJobs, memory: TaskMemory) -> EndPolicy:  # noqa: ARG002
        """Return the policy for jobs that end with another status than `Completed`."""
        return EndPolicy()

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the task's result after its last step."""
        return done.result

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the snapshot of the completed job, with `job_name`, `attempt` and `earlier_attempts`.

        Raises:
            SpecError: the spec or the connection is wrong, or another Airflow has claimed the bucket; nothing was
                started.
            RejectedRequestError: the service rejected the job, or another deployment's job has its name.
            JobFailedError: the job ended with another status than `Completed`; the error's class gives the reason.
            CapacityError: the service had no instances.
        """
        from trainyard_airflow.hooks.bucket_claim import claim_bucket

        if self.clients.defaults.get("bucket"):
            claim_bucket(self.clients, self.clients.bucket())
        return self.go(context, lambda run: run.next())

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the snapshot of the ended job, or raise the error of the trigger.

        Raises:
            TrainingRunError: the job did not complete, or could not be followed.
        """
        if "error" in event:
            error = error_from_dict(event["error"])
            raise error
        return self.go(
            context,
            lambda run: run.ended(
                _snapshot_of(event, run),
                event.get("facts", {}),
                was_attached=bool(event.get("was_attached")),
                is_announced=True,
            ),
        )

    def execute_again(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Resume after the end of a job that was being stopped, or after the pause that follows a failed trigger.

        Returns the task's result, as `execute` does.
        """
        return self.go(context, lambda run: run.next())

    def execute_after_quota(
        self,
        context: Context,
        event: Any,  # noqa: ARG002
        quota: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Retry the creation of a job that was rejected for lack of quota or capacity.

        Returns the task's result. `quota` has the fields of a `QuotaWait`, which describes the progress of the wait.
        """
        return self.go(context, lambda run: run.next(QuotaWait.from_dict(quota)))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume after a deferral; stop the job if `execution_timeout` ended the deferral.

        If a deferral times out or its trigger fails, Airflow does not call `next_method`. The base class raises an
        exception instead, which is handled here.

        After a failed trigger, the task defers again and pauses before it follows the job. Usually a new trigger
        of the job waits for the end of the pause, and stops the job if the task is killed meanwhile. Airflow's time
        trigger cannot stop a job. It is used for the pause in two cases only:

        - The job's trigger failed during its previous pause.
        - The task state store is not readable.

        Raises:
            TimeLimitError: the task's `execution_timeout` has passed; the job was stopped.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            return self.go(context, lambda run: run.resume_late())
        except TaskDeferralError as error:
            memory, now = self._memory(context), time.time()
            failed_at, failures = memory.trigger_failed_at, memory.count_trigger_failure(now)
            delay_s = trigger_pause_s(failures or 1)
            self.log.warning(
                "The trigger failed (%s): following the job again in %s",
                error,
                format_duration(delay_s),
            )
            if failures is None or now - failed_at < trigger_pause_s(failures - 1) / 2:
                self._defer_for(context, delay_s, self.execute_again.__name__)
            self._follow_from = now + delay_s
            return self.go(context, lambda run: run.next())

    def on_kill(self) -> None:
        """Stop the job that this process waits for, if the task was ended or has timed out.

        A task is ended by a user who marks its state, clears it or deletes it.

        In two cases the job continues, and the process continues to wait for it:

        - Airflow still reports the task as running, for example while a worker is drained.
        - Airflow does not answer.

        If the process is then killed, the task's next try finds the job. Without a next try, the run's report or
        `clean_up_orphans` stops the job.

        Airflow calls this method in the middle of `execute`, which continues afterwards. If the job is only about
        to be created, `execute` reads `JobRun.is_killed` and does not create it.
        """
        is_late = isinstance(sys.exception(), AirflowTaskTimeout)
        if self._host is not None and not is_late and not self._host.is_over():
            self.log.warning(
                "SIGTERM, but Airflow does not report the task as ended: its job continues"
            )
            return
        self._is_killed = True
        if self._run is None:
            self.log.warning("Task was killed: it has no job to stop")
        else:
            self._run.kill()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:  # noqa: ARG002
        """Return the job's inputs and outputs; called by Airflow's OpenLineage provider, also after a failure."""
        from trainyard.runs.lineage import input_datasets, job_outputs
        from trainyard_airflow.hooks.lineage import operator_lineage

        job = self.ended_job or {}
        return operator_lineage(
            inputs=input_datasets(self._run.job_type.sources() if self._run else ()),
            outputs=job_outputs(job),
            job_arn=job.get("arn"),
        )

    def render_template_fields(
        self, context: Context, jinja_env: jinja2.Environment | None = None
    ) -> None:
        """Render the templated fields, and mask the spec's secrets in all logs and pages.

        If a field is a function `(context, jinja_env)`, it is called.
        """
        super().render_template_fields(context, jinja_env)
        self.mask_secrets(self.spec)

    def mask_secrets(self, spec: object) -> None:
        """Mask the secrets of a spec in all logs and pages."""
        from airflow.sdk.log import mask_secret

        for secret in spec_secrets(spec):
            mask_secret(secret)

    @property
    def connection(self) -> ConnectionArguments:
        """The connection's name and overrides, for this operator's clients and for its triggers."""
        from trainyard_airflow.hooks.aws_clients import ConnectionArguments

        return ConnectionArguments(
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
        )

    @cached_property
    def clients(self) -> AwsClients:
        """The connection's clients."""
        from trainyard_airflow.hooks.aws_clients import AwsClients

        return AwsClients(self.connection)

    def task_jobs(self, context: Context) -> TaskJobs:
        """Return the task's jobs."""
        ti = context["ti"]
        key = TaskKey(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
        )
        return TaskJobs(
            task=key, kind=self.job_kind, clients=self.clients, project=project_folder()
        )

    def _memory(self, context: Context) -> TaskMemory:
        return task_memory(context, self.clients, ledger_uri=self.ledger_uri)

    def job_run(self, context: Context) -> JobRun:
        """Return the `JobRun` of this start of the task.

        Raises:
            SpecError: the connection or the notifier is wrong.
        """
        from trainyard.runs.notifier import Notifier
        from trainyard_airflow.hooks.job_spans import TaskTrace
        from trainyard_airflow.jobs.job_run import JobRun
        from trainyard_airflow.jobs.task_ledger import TaskLedger

        # All faults of the arguments are found before a job is created.
        self._notifier = Notifier.from_dict(self.notifier)
        _ = self.clients.region
        self.mask_secrets(self.clients.job_defaults)
        jobs = self.task_jobs(context)
        memory = self._memory(context)
        host = self._host = _AirflowTask(self, context, jobs)
        run = self._run = JobRun(
            job_type=self.job_type(jobs, context),
            memory=memory,
            ledger=TaskLedger(jobs, uri=self.ledger_uri),
            host=host,
            policy=self.end_policy(jobs, memory),
            trace=TaskTrace.of(context["ti"]),
            poll_interval_s=self.poll_interval_s,
            time_limit=self.execution_timeout,
        )
        run.is_killed = self._is_killed  # a signal may have come before the run was known
        return run

    def go(self, context: Context, begin: Callable[[JobRun], Step]) -> dict[str, Any]:
        """Execute the steps of the task's jobs up to the task's result; stop the job on `execution_timeout`.

        Args:
            context: the task's context.
            begin: returns the first step.

        Raises:
            TaskDeferred: the task waits in the triggerer.
            TimeLimitError: the task's time limit is over; the job was stopped.
            AirflowTaskTimeout: the task's time limit is over, and there was no job yet.
        """
        run = self.job_run(context)
        try:
            step = begin(run)
            while not isinstance(step, Done):
                step = self.take(context, run, step)
        except AirflowTaskTimeout:
            if run.waits_for is None:
                raise
            run.time_out(run.waits_for)
        return self.returned(context, step)

    def note_ended(self, ti: Any, job: Mapping[str, Any]) -> None:
        """Store an ended job for the task's lineage; if Airflow traces the run, export the spans of the task's jobs.

        Spans are exported for this job and for earlier jobs, but at most once per job.

        Args:
            ti: the task instance.
            job: the job's snapshot, with `earlier_attempts`.
        """
        from trainyard_airflow.hooks.job_spans import export_jobs

        self.ended_job = job
        if self._run is None or self._run.trace is None:
            return
        memory, jobs = self._run.memory, [*job["earlier_attempts"], job]
        known = memory.traced_jobs
        new = [each for each in jobs if each["name"] not in known]
        if export_jobs(ti, new):
            memory.note_traced(each["name"] for each in new)

    def take(self, context: Context, run: JobRun, step: Step) -> Step:
        """Wait as the step requires, in the triggerer or in this process, and return the next step.

        Raises:
            TaskDeferred: the task waits in the triggerer.
            ContractError: this kind of task has no such step.
        """
        match step:
            case Follow():
                followed = self._followed(run, step.job_name, step.patience)
                echoed = {"facts": dict(step.facts), "was_attached": step.was_attached}
                snapshot = self._wait(context, followed, self.execute_complete.__name__, echoed)
                return run.ended(
                    snapshot, step.facts, was_attached=step.was_attached, is_announced=True
                )
            case AwaitStop():
                followed = self._followed(run, step.job_name, Patience())
                method, kwargs = self._after_stop(step.quota)
                self._wait(context, followed, method, {"facts": {}}, kwargs)
                return run.next(step.quota)
            case AwaitQuota():
                self._pause(context, run, step)
                return run.next(step.quota)
            case _:
                raise ContractError(
                    f"{type(self).__name__} does not implement the step {type(step).__name__}",
                    where=f"task {self.task_id}",
                    got=repr(step),
                )

    def _followed(self, run: JobRun, name: str, patience: Patience) -> Followed:
        """Return the settings with which the triggerer or the worker follows a job to its end."""
        from trainyard_airflow.triggers.followed import Followed

        return Followed(
            kind=self.job_kind,
            job_name=name,
            poll_interval_s=self.poll_interval_s,
            stream_logs=self.stream_logs,
            patience=patience,
            notifier=self._notifier,
            has_secrets=bool(run.job_type.secrets),
            connection=self.connection,
        )

    def _wait(
        self,
        context: Context,
        followed: Followed,
        method_name: str,
        echoed: dict[str, Any],
        kwargs: dict[str, Any] | None = None,
    ) -> JobSnapshot:
        """Wait for the job's end, and return its final snapshot.

        A deferrable task defers instead, and resumes with `method_name` and `kwargs`. The trigger's
        event then contains `echoed`.
        """
        from trainyard_airflow.triggers.follow import follow_job
        from trainyard_airflow.triggers.interruptible import run_interruptible
        from trainyard_airflow.triggers.job import JobTrigger

        if self.deferrable:
            pause = {"not_before": self._follow_from} if self._follow_from else {}
            self.defer(
                trigger=JobTrigger(**followed.to_dict(), echoed=echoed, **pause),
                method_name=method_name,
                kwargs=kwargs,
                timeout=self._time_left(context),
            )
        return run_interruptible(follow_job(followed))

    def _pause(self, context: Context, run: JobRun, step: AwaitQuota) -> None:
        if self.deferrable:
            method, kwargs = self._after_quota(step.quota)
            self._defer_for(context, step.seconds, method, kwargs=kwargs)
        try:
            time.sleep(step.seconds)
        except AirflowTaskTimeout:
            run.time_out(step.job_name)

    def _after_stop(self, quota: QuotaWait | None) -> tuple[str, dict[str, Any]]:
        """Return the method with which the task resumes after a wait for a stopping job, and its arguments."""
        return (self.execute_again.__name__, {}) if quota is None else self._after_quota(quota)

    def _after_quota(self, quota: QuotaWait) -> tuple[str, dict[str, Any]]:
        """Return the method with which the task resumes after a wait for the quota, and its arguments."""
        return self.execute_after_quota.__name__, {"quota": asdict(quota)}

    def _defer_for(
        self,
        context: Context,
        delay_s: float,
        method_name: str,
        *,
        kwargs: dict[str, Any] | None = None,
    ) -> NoReturn:
        """Defer for some seconds with Airflow's time trigger, and resume with a method."""
        from airflow.providers.standard.triggers.temporal import DateTimeTrigger

        moment = datetime.now(UTC) + timedelta(seconds=max(_SHORTEST_DEFERRAL_S, delay_s))
        self.defer(
            trigger=DateTimeTrigger(moment=moment),
            method_name=method_name,
            kwargs=kwargs,
            timeout=self._time_left(context),
        )

    def _time_left(self, context: Context) -> timedelta | None:
        """Return the time that is left of `execution_timeout`, at least one second; None if there is no timeout.

        Each deferral needs a new value, because Airflow counts a deferral's timeout from the start of that deferral.
        The time spent is known, because the task instance keeps the start time of the try.
        """
        if self.execution_timeout is None:
            return None
        spent = datetime.now(UTC) - context["ti"].start_date
        return max(timedelta(seconds=1), self.execution_timeout - spent)


class _AirflowTask:
    """The `TaskHost` of a `JobRun`: XComs, links and the task's state in Airflow."""

    def __init__(self, operator: SageMakerJobOperator, context: Context, jobs: TaskJobs) -> None:
        self._operator = operator
        self._ti: Any = context["ti"]
        self._jobs = jobs

    def name_job(self, job_name: str) -> None:
        """Push XComs for the pages in Airflow's UI: the job's name, its kind, and the connection to read it with."""
        self._ti.xcom_push(key=JOB_XCOM_KEY, value=job_name)
        connection = self._operator.connection
        value = {
            "aws_conn_id": connection.aws_conn_id,
            "region_name": connection.region_name,
            "kind": self._jobs.kind.value,
        }
        self._ti.xcom_push(key=JOB_CONNECTION_XCOM_KEY, value=value)

    def link_job(self, job_name: str, *, output: str | None) -> None:
        """Push an XCom with the addresses of the job's pages in AWS's console; without a console, push nothing."""
        api, clients = self._jobs.api, self._jobs.clients
        if not clients.has_console:
            return
        links = job_links(
            job_name=job_name,
            console_path=api.console_path,
            log_group=api.log_group,
            output_s3_uri=output,
            region=clients.region,
            partition=clients.partition,
            stream_mark=api.stream_mark,
        )
        self._operator.links = links
        self._ti.xcom_push(key=LINKS_XCOM_KEY, value=links)

    def note_ended(self, job: Mapping[str, Any]) -> None:
        """Export the spans of an ended job to the run's trace, and keep the job for the task's OpenLineage facets.

        If Airflow does not trace the run, no spans are exported.
        """
        self._operator.note_ended(self._ti, job)

    def note_failed(self, job: Mapping[str, Any]) -> None:
        """Push the facts of a failed job as an XCom."""
        self._ti.xcom_push(key=FAILED_JOB_XCOM_KEY, value=job)

    def has_been_ended(self) -> bool:
        """Return whether the task was cleared, marked or deleted since its start.

        The result is always False if the task is not deferrable.

        Airflow notifies the worker only with the next heartbeat, seconds later. A deferrable task tries to defer
        before that. Airflow would then reject the deferral, and nothing would stop the job. This check therefore
        comes before the deferral.
        """
        if not self._operator.deferrable:
            return False
        return _is_over(self._states())

    def is_over(self) -> bool:
        """Return whether the task is deleted or in another state than `running`.

        Airflow is queried for the state. If it does not answer within 2 s, the result is False.

        The operator's `on_kill` calls this method from a signal handler. The signal may have interrupted another
        query of this process, so this query runs in a thread.
        """
        answers: SimpleQueue[frozenset[str] | None] = SimpleQueue()
        threading.Thread(target=lambda: answers.put(self._states()), daemon=True).start()
        try:
            return _is_over(answers.get(timeout=_ANSWER_LIMIT_S))
        except Empty:
            return False

    def _states(self) -> frozenset[str] | None:
        """Return the states that Airflow has for the task; empty if it was deleted, None if Airflow does not answer."""
        ti = self._ti
        try:
            states = ti.get_task_states(
                dag_id=ti.dag_id,
                task_ids=[ti.task_id],
                run_ids=[ti.run_id],
                map_index=self._jobs.task.map_index,
            )
        except Exception as error:  # noqa: BLE001  # after any error, the caller continues without an answer
            self._operator.log.warning("Airflow does not report the task's state (%s)", error)
            return None
        return frozenset(states.get(ti.run_id, {}).values())


def _is_over(states: frozenset[str] | None) -> bool:
    """Return whether the task was deleted (no states) or is not running.

    False if the states are unknown (None).
    """
    return states is not None and "running" not in states


def _snapshot_of(event: Mapping[str, Any], run: JobRun) -> JobSnapshot:
    """Return the snapshot of the ended job that a trigger's event names.

    Events of version 0 contain the snapshot. For other events, it is read from the service.

    Raises:
        InfrastructureError: the service no longer has the job.
    """
    if "snapshot" in event:
        return JobSnapshot.from_dict(event["snapshot"])
    name = event["job"]["name"]
    snapshot = run.service.describe(name)
    if snapshot is None:
        raise InfrastructureError(
            "the job has ended, but SageMaker no longer finds it",
            job_name=name,
            next_step="look for the job in the SageMaker console, and check the connection's region",
        )
    return snapshot
