"""`CheckRulesOperator`: evaluates rules on the training of another task while it runs."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from trainyard.errors import TrainingRunError, error_from_dict
from trainyard.job_status import JobStatus
from trainyard.rules.watch_plan import WatchPlan
from trainyard.runs.notifier import Notifier
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.units import at_step, format_duration
from trainyard_airflow.jobs.task_jobs import TaskKey
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.operators.task_state import task_memory
from trainyard_airflow.triggers.interruptible import run_interruptible
from trainyard_airflow.triggers.observed_task import NOT_BEGUN, RESTING, ObservedTask
from trainyard_airflow.triggers.pace import trigger_pause_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.jobs import SageMakerJobs
    from trainyard_airflow.jobs.task_memory import TaskMemory

ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_SETTLING_LOOKS = 20


class CheckRulesOperator(ConnectedOperator):
    """Evaluates rules on the training job of `watched_task_id` while it runs; stops the job if a rule requires it.

    It reads the statistics of the job's ranks from S3. If the job has rules of the service's Debugger, it also
    reports their evaluations. To stop the job, it tags the job with the rule and the step and then requests the
    stop. The watched task (`WatchedTrainingJobOperator`) then ends with a verdict.

    Each job is watched until it ends. If the watched task then makes a next attempt, that job is watched as well.
    While the watched task waits for its next try or for a human's answer, this task waits without a worker. If
    there is no next attempt, this task returns its last findings. The end or failure of this task does not affect
    the training.

    Returns the name of the last job, the issues (`issues`), the rule that stopped the job (`stopped_by`), and the
    S3 address of the document with all verdicts (`rules_uri`).

    Args:
        watch: a `WatchPlan`, the mapping of its fields, or a function `(context, jinja_env)` that returns either.
        watched_task_id: the task whose job is watched.
        job_name: name of a job to watch in place of a task.
        deferrable: whether to watch in the triggerer, without a worker slot.
        ledger_uri: S3 prefix of the run's ledger, the same as that of the watched task. Templated.
        notifier: recipient of messages on issues of severity `error`: the result of `Notifier.to_dict`, or its
            JSON, or None.
        aws_conn_id: the connection.
        region_name: overrides the connection's region.
    """

    template_fields: Sequence[str] = (
        "watch",
        "job_name",
        "ledger_uri",
        "notifier",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#fdeeea"

    def __init__(
        self,
        *,
        watch: Any = None,
        watched_task_id: str | None = None,
        job_name: str | None = None,
        ledger_uri: str | None = None,
        notifier: Mapping[str, Any] | str | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        if (watched_task_id is None) == (job_name is None):
            raise ValueError(
                "CheckRulesOperator needs exactly one of watched_task_id and job_name, got "
                f"{watched_task_id!r} and {job_name!r}"
            )
        super().__init__(**kwargs)
        self.watch = {} if watch is None else watch
        self.watched_task_id = watched_task_id
        self.job_name = job_name
        self.ledger_uri = ledger_uri
        self.notifier = notifier
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the findings after the job's end.

        Raises:
            SpecError: the plan's rules are invalid.
            AirflowRescheduleException: the watched task has not begun, and no triggerer waits for it.
        """
        from trainyard.rules.reactions import planned_reactions

        planned_reactions(self._plan)
        if not self.deferrable:
            self._wait_for_begin(context)
        return self.execute_complete(context, self._watch(context))

    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, Any],
        watched: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the findings if there is no further job to watch. Otherwise watch the next job, or wait for it.

        Args:
            context: the task's context.
            event: event of the trigger.
            watched: findings on the previous job, if there was one.

        Raises:
            TrainingRunError: the job could not be watched.
            AirflowRescheduleException: the watched task still has not begun.
        """
        if "absent" in event and watched is None:
            self._wait_for_begin(context)
        while True:
            if "error" in event and not self._gives_up(context, event):
                error = error_from_dict(event["error"])
                raise error
            watched = self._later(context, event.get("watched"), watched)
            is_all = self._is_all(context, event, watched)
            if is_all and self._left(context, self._attempts(context), watched) is None:
                return self._log_result(watched)
            before_s = 0.0 if "watched" in event else event["absent_s"]
            event = self._watch(context, before_s=before_s, watched=watched)

    def _gives_up(self, context: Context, event: Mapping[str, Any]) -> bool:
        """Give up an ended job that could not be watched; return whether this task continues without its verdicts.

        The name of the job is recorded in the task's memory, so that the job is not watched again. In these cases
        the job is not given up: the result is False, and the task fails with the error of the watch.

        - The event is not about an ended job of the watched task.
        - The job is the newest one, and the watched task has ended.
        - The task's memory cannot be written.
        """
        attempts = self._attempts(context)
        names = [each.name for each in attempts if each.is_terminal]
        name = event.get("job_name")
        is_last = bool(attempts) and name == attempts[-1].name
        if name not in names or (is_last and self._has_ended(context, 1)):
            return False
        self.log.warning(
            "Job %s has ended and cannot be watched, its verdicts are missing: %s",
            name,
            error_from_dict(event["error"]),
        )
        memory = self._memory(context)
        memory.note_given_up(str(name))
        return name in memory.given_up_jobs

    def _memory(self, context: Context) -> TaskMemory:
        return task_memory(context, self.clients, ledger_uri=self.ledger_uri)

    def _later(
        self, context: Context, new: dict[str, Any] | None, known: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return either `new` or `known`: the findings on the later attempt. None if both are None.

        The findings that came last (`new`) can be on an earlier attempt, because a running job is watched before
        ended ones.
        """
        if new is None or known is None:
            return new or known
        names = [each.name for each in self._attempts(context)]
        is_earlier = (
            new["watched_job"] in names
            and known["watched_job"] in names[names.index(new["watched_job"]) + 1 :]
        )
        return known if is_earlier else new

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume after a deferral; if the trigger failed, watch again unless the watched task is over.

        Raises:
            TaskDeferralError: the trigger failed, and the watched task is over; the task's retries apply.
            AirflowRescheduleException: the trigger failed; the task waits without a worker and watches again.
        """
        from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferralError

        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralError as error:
            if self._is_over(context):
                raise
            failures = self._memory(context).count_trigger_failure(time.time())
            delay_s = trigger_pause_s(failures or 1)
            self.log.warning(
                "The trigger failed (%s): watching again in %s", error, format_duration(delay_s)
            )
            again = datetime.now(UTC) + timedelta(seconds=delay_s)
            raise AirflowRescheduleException(again) from error  # type: ignore[no-untyped-call]  # Airflow's

    def _is_over(self, context: Context) -> bool:
        """Return whether the watched task has ended; False if unknown.

        If a job is watched in place of a task, return whether that job has ended or is absent.
        """
        if self.watched_task_id:
            return self._watched_state(context) in ENDED
        try:
            snapshot = self.jobs.describe(str(self.job_name))
        except TrainingRunError as error:
            self.log.warning("It is unknown whether job %s still runs: %s", self.job_name, error)
            return False
        return snapshot is None or snapshot.is_terminal

    def _wait_for_begin(self, context: Context) -> None:
        """Reschedule this task if the watched task has not begun.

        The task does not wait in its process, because `dag.test()` runs one task at a time: the watched task
        would never begin.

        Raises:
            AirflowRescheduleException: the watched task has not begun.
        """
        if self.watched_task_id is None or self._watched_state(context) not in NOT_BEGUN:
            return
        from airflow.sdk.exceptions import AirflowRescheduleException

        again = datetime.now(UTC) + timedelta(seconds=self._plan.absence_s())
        raise AirflowRescheduleException(again)  # type: ignore[no-untyped-call]  # Airflow's

    def _is_all(
        self, context: Context, event: Mapping[str, Any], watched: dict[str, Any] | None
    ) -> bool:
        """Return whether the watched task will have no further job after this event."""
        if not self.watched_task_id:
            return True
        if "watched" not in event or watched is None:
            return self._has_ended(context, 1)
        # If the plan has a retry, a stop may not be the end; the state of the watched task decides.
        is_last = bool(watched["stopped_by"]) and not self._plan.on_stop
        has_verdict = is_last or watched["job_status"] == JobStatus.COMPLETED
        return has_verdict or self._has_ended(context, _SETTLING_LOOKS)

    @cached_property
    def jobs(self) -> SageMakerJobs:
        """The service's training jobs."""
        from trainyard_airflow.hooks.jobs import SageMakerJobs

        return SageMakerJobs(self.clients, JobKind.TRAINING)

    @cached_property
    def _plan(self) -> WatchPlan:
        """The plan, with the connection's pause between polls if the plan sets none."""
        plan = WatchPlan.of(self.watch)
        configured = self.clients.defaults.get("rules_poll_interval_s")
        return replace(
            plan, poll_interval_s=plan.poll_interval_s or (configured and float(configured))
        )

    def _watch(
        self, context: Context, *, before_s: float = 0.0, watched: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Watch one job in this process, and return the event of the watch.

        A deferrable task does not return from this method. It defers, and `execute_complete` receives the trigger's
        event.

        Args:
            context: the task's context.
            before_s: seconds of the previous wait for a missing job; 0 if there was none.
            watched: findings on the previous job.
        """
        name = self._name(context, watched)
        absent_s = self._plan.absence_s(before_s)
        self.log.info("Watching job %s every %g s", name, self._plan.pause_s)
        if self.deferrable:
            self._defer(context, name, absent_s, watched)
        from trainyard_airflow.triggers.rule_look import watch_job

        try:
            event = run_interruptible(
                watch_job(
                    name,
                    plan=self._plan,
                    connection=self.connection,
                    absent_s=absent_s,
                    notifier=Notifier.from_dict(self.notifier),
                )
            )
        except TrainingRunError as error:
            event = {"error": error.to_dict(), "job_name": name}
        return {**event, "absent_s": absent_s}

    def _defer(
        self, context: Context, name: str, absent_s: float, watched: dict[str, Any] | None
    ) -> NoReturn:
        from trainyard_airflow.triggers.followed import VERSION
        from trainyard_airflow.triggers.rules import RulesTrigger

        task = self._watched_task(context) if self.watched_task_id else None
        self.defer(
            trigger=RulesTrigger(
                v=VERSION,
                job_name=name,
                absent_s=absent_s,
                plan=self._plan.to_dict(),
                connection=self.connection.to_dict(),
                notifier=notifier.to_dict()
                if (notifier := Notifier.from_dict(self.notifier))
                else None,
                watched_task=asdict(task) if task else None,
            ),
            method_name=self.execute_complete.__name__,
            kwargs={"watched": watched},
        )

    def _name(self, context: Context, watched: dict[str, Any] | None = None) -> str:
        """Return the name of the job to watch: the given job, or a job of the watched task.

        The first of these that exists is chosen:

        1. The newest running job, because a job that costs money must be watched.
        2. The oldest ended job that was not watched, because its statistics still exist.
        3. The last job, if the watched task has ended: it is watched again.
        4. The next attempt.

        Args:
            context: the task's context.
            watched: findings on the previous job.
        """
        if self.job_name:
            return self.job_name
        attempts = self._attempts(context)
        running = [each for each in attempts if not each.is_terminal]
        job = running[-1] if running else self._left(context, attempts, watched)
        if job is None and attempts and self._has_ended(context, 1):
            # The last job of a task that has ended is watched again: this task returns what it finds.
            job = attempts[-1]
        return job.name if job else self._name_of(context, len(attempts) + 1)

    def _left(
        self, context: Context, attempts: Sequence[JobSnapshot], watched: dict[str, Any] | None
    ) -> JobSnapshot | None:
        """Return the first ended attempt that is still to be watched, or None.

        An attempt is done if it was watched to its end, if it never started to train, or if this task has given up
        watching it.
        """
        ended = [each for each in attempts if each.is_terminal]
        done = self._memory(context).given_up_jobs if ended else frozenset()
        done |= {watched["watched_job"]} if watched else frozenset()
        return next(
            (each for each in ended if each.name not in done and not self._was_watched(each)), None
        )

    def _attempts(self, context: Context) -> list[JobSnapshot]:
        """Return the watched task's jobs, oldest first; none without a watched task."""
        found: list[JobSnapshot] = []
        if not self.watched_task_id:
            return found
        while snapshot := self.jobs.describe(self._name_of(context, len(found) + 1)):
            found.append(snapshot)
        return found

    def _was_watched(self, snapshot: JobSnapshot) -> bool:
        """Return whether an ended job has its final verdicts, or never trained and needs none."""
        from trainyard_airflow.triggers.rule_findings import document_uri

        return snapshot.started_at is None or self.objects.exists(document_uri(snapshot))

    def _name_of(self, context: Context, attempt: int) -> str:
        ti = context["ti"]
        task = TaskKey(dag_id=ti.dag_id, run_id=ti.run_id, task_id=str(self.watched_task_id))
        return task.job_name(JobKind.TRAINING, attempt, deployment=self.clients.deployment)

    def _has_ended(self, context: Context, looks: int) -> bool:
        """Return whether the watched task has ended.

        The task ends shortly after its job, so its state is read up to `looks` times, one second
        apart.
        """
        for look in range(looks):
            if looks > 1 and self._goes_on(context):
                return False
            state = self._watched_state(context)
            if state in ENDED or state in RESTING:
                return state in ENDED
            if look + 1 < looks:
                time.sleep(1.0)
        return False

    def _goes_on(self, context: Context) -> bool:
        """Return whether the watched task has a job that has not ended, such as its next attempt."""
        return any(not each.is_terminal for each in self._attempts(context))

    def _watched_task(self, context: Context) -> ObservedTask:
        ti = context["ti"]
        return ObservedTask(dag_id=ti.dag_id, run_id=ti.run_id, task_id=str(self.watched_task_id))

    def _watched_state(self, context: Context) -> str | None:
        ti: Any = context["ti"]
        return self._watched_task(context).state(ti.get_task_states)

    def _log_result(self, result: dict[str, Any] | None) -> dict[str, Any]:
        if result is None:
            self.log.info("There was no job to watch")
            return {"watched_job": None, "issues": []}
        for each in result["issues"]:
            self.log.info(
                "%s at step %s: %s (%s)",
                each["name"],
                each["step"],
                each["evidence"],
                each["action"],
            )
        stop = result["stopped_by"]
        self.log.info(
            "Job %s %s, %d records evaluated, %d issues%s",
            result["watched_job"],
            result["job_status"],
            result["num_records"],
            result["num_issues"],
            f"; stopped by {stop['name']}{at_step(stop['step'])}" if stop else "",
        )
        return result
