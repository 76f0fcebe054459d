"""`WaitingJobTask`: a task that waits for its job or for the account's quota, and what ends the waiting early."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError, TaskDeferralTimeout

from trainyard.errors import (
    CapacityError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.specs.training_job import DEFAULT_QUOTA_WAIT_S
from trainyard.units import format_duration
from trainyard_airflow.operators.job_task import JobTask
from trainyard_airflow.operators.quota_wait import QuotaWait
from trainyard_airflow.operators.task_memory import TaskMemory
from trainyard_airflow.triggers.pace import jittered, trigger_pause_s
from trainyard_airflow.triggers.watch import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot

_SHORTEST_DEFERRAL_S = 2.0


class WaitingJobTask(JobTask):
    """Waits for a job: in the triggerer where deferrable, else in the worker, by the same code."""

    _waiting_for: str | None = None
    _is_killed: bool = False

    def patience(self, context: Context, facts: Mapping[str, Any]) -> Patience:  # noqa: ARG002
        """Return how long the job may be silent or wait for instances; for ever unless there is more to say."""
        return Patience()

    def max_quota_wait_s(self, context: Context) -> int:  # noqa: ARG002
        """Return the seconds to wait for the account's quota where the rung sets no limit; 0 = for ever."""
        return DEFAULT_QUOTA_WAIT_S

    @abstractmethod
    def _run(self, context: Context, quota: QuotaWait | None = None) -> dict[str, Any]: ...

    @abstractmethod
    def _resume_too_late(self, context: Context) -> dict[str, Any]: ...

    @abstractmethod
    def _ended(
        self,
        context: Context,
        snapshot: JobSnapshot,
        facts: dict[str, Any],
        *,
        was_attached: bool = False,
    ) -> dict[str, Any]: ...

    @abstractmethod
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the job has ended."""

    def execute_again(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Continue after a stopping job has ended, or some time after a trigger failed."""
        return self._run(context)

    def execute_after_quota(
        self,
        context: Context,
        event: Any,  # noqa: ARG002
        quota: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Ask again for a job that the account's quota had no room for."""
        return self._run(context, QuotaWait.from_dict(quota))

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
            delay_s = trigger_pause_s(TaskMemory(context).count_trigger_failure(time.time()))
            self.log.warning(
                "The trigger failed (%s): looking at the job again in %s",
                error,
                format_duration(delay_s),
            )
            self._defer_for(context, delay_s, self.execute_again.__name__)

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

    def _wait(
        self, context: Context, name: str, facts: dict[str, Any], *, was_attached: bool = False
    ) -> dict[str, Any]:
        self._waiting_for = name
        if self._is_killed:
            self.jobs.stop(name, is_kill=True)
            raise JobStoppedError("the task was killed while its job started", job_name=name)
        self.announce(context, name, facts)
        if self.deferrable and self._has_been_ended(context):
            self.jobs.stop(name, is_kill=True)
            raise JobStoppedError("the task was ended while its job started", job_name=name)
        patience = self.patience(context, facts)
        if self.deferrable:
            self._defer(
                context,
                name,
                self.execute_complete.__name__,
                facts,
                patience=patience,
                was_attached=was_attached,
            )
        ended = self._follow(name, patience=patience)
        return self._ended(context, ended, facts, was_attached=was_attached)

    def _has_been_ended(self, context: Context) -> bool:
        """Return whether somebody cleared, marked or deleted the task since it was started.

        Airflow would tell its worker with the next heartbeat, seconds later: by then the task has deferred, which is
        refused, and nobody stops the job.
        """
        ti: Any = context["ti"]
        try:
            states = ti.get_task_states(
                dag_id=ti.dag_id,
                task_ids=[ti.task_id],
                run_ids=[ti.run_id],
                map_index=-1 if ti.map_index is None else ti.map_index,
            )
        except Exception as error:  # noqa: BLE001  # whatever ails Airflow, it says so when the task defers
            self.log.warning("Airflow does not tell the task's state (%s)", error)
            return False
        return "running" not in states.get(ti.run_id, {}).values()

    def _await_end(self, context: Context, name: str) -> None:
        self._waiting_for = name
        if self.deferrable:
            self._defer(context, name, self.execute_again.__name__, {})
        self._follow(name)

    def _await_quota(
        self,
        context: Context,
        place: Mapping[str, Any],
        name: str,
        quota: QuotaWait | None,
        refusal: QuotaExceededError | CapacityError,
        *,
        longest_s: int,
    ) -> QuotaWait:
        """Wait until the Create call is worth another try, and return how far the waiting has come.

        Airflow's retries are for attempts that were paid: a full quota is waited for without them, until
        `execution_timeout` or until the rung's time is over and it is the next rung's turn.

        Args:
            context: the task's.
            place: the rung.
            name: the job's name.
            quota: how far the waiting has come; None before the first refusal.
            refusal: of the Create call.
            longest_s: for how long to ask where the rung does not say; 0 = for ever.

        Raises:
            QuotaExceededError: the last rung's time is over.
            CapacityError: likewise.
        """
        now = time.time()
        quota = quota or QuotaWait.begin(now)
        if quota.is_over(place.get("rung_max_wait_s") or longest_s, now=now):
            if place.get("is_last_rung", True):
                raise refusal
            self.log.warning("Quota for %s stayed full: the next rung is tried", place["rung_name"])
            return quota.given_up(place["rung"], now=now)
        quota = quota.refused()
        # Tasks that were refused together do not ask together again.
        delay_s = jittered(quota.pause_s(self.poll_interval_s))
        self.log.info(
            "Job %s waits for quota since %s: %s; asking again in %s",
            name,
            format_duration(now - quota.began_at),
            refusal.got or refusal.what,
            format_duration(delay_s),
        )
        if self.deferrable:
            quota_kwargs = {"quota": asdict(quota)}
            self._defer_for(
                context, delay_s, self.execute_after_quota.__name__, kwargs=quota_kwargs
            )
        try:
            time.sleep(delay_s)
        except AirflowTaskTimeout:
            self._time_out(name)
        return quota

    def _leave_rung(
        self, place: Mapping[str, Any], quota: QuotaWait | None, refusal: QuotaTooSmallError
    ) -> QuotaWait:
        """Return the waiting as it stands on the next rung: this one's quota could never hold the job.

        Raises:
            QuotaTooSmallError: there is no rung after it.
        """
        if place.get("is_last_rung", True):
            raise refusal
        self.log.warning("%s: the next rung is tried", refusal.got or refusal.what)
        now = time.time()
        return (quota or QuotaWait.begin(now)).refused().given_up(place["rung"], now=now)

    def _defer_for(
        self,
        context: Context,
        delay_s: float,
        method_name: str,
        *,
        kwargs: dict[str, Any] | None = None,
    ) -> NoReturn:
        """Resume by a method after some seconds, by a trigger of Airflow's own."""
        from airflow.providers.standard.triggers.temporal import DateTimeTrigger

        moment = datetime.now(UTC) + timedelta(seconds=max(_SHORTEST_DEFERRAL_S, delay_s))
        self.defer(
            trigger=DateTimeTrigger(moment=moment),
            method_name=method_name,
            kwargs=kwargs,
            timeout=self._time_left(context),
        )

    def _defer(
        self,
        context: Context,
        name: str,
        method_name: str,
        facts: dict[str, Any],
        *,
        patience: Patience | None = None,
        was_attached: bool = False,
    ) -> NoReturn:
        from trainyard_airflow.triggers.job import JobTrigger

        echoed = {"facts": facts, "was_attached": was_attached}
        self.defer(
            trigger=JobTrigger(**self.followed(name, patience=patience).to_dict(), echoed=echoed),
            method_name=method_name,
            timeout=self._time_left(context),
        )

    def _time_left(self, context: Context) -> timedelta | None:
        """Return what is left of `execution_timeout`, at least a second; None where there is none.

        Airflow gives each deferral the timeout that it is told, and keeps a try's start over its deferrals.
        """
        if self.execution_timeout is None:
            return None
        spent = datetime.now(UTC) - context["ti"].start_date
        return max(timedelta(seconds=1), self.execution_timeout - spent)

    def _follow(self, name: str, *, patience: Patience | None = None) -> JobSnapshot:
        """Return the job's final snapshot, waiting in this process by the trigger's own code."""
        from trainyard_airflow.triggers.follow import follow_job
        from trainyard_airflow.triggers.interruptible import run_interruptible

        return run_interruptible(follow_job(self.followed(name, patience=patience)))

    def _time_out(self, name: str) -> NoReturn:
        limit = self.execution_timeout or timedelta(0)
        was_running = self.jobs.stop(name)
        self._waiting_for = None
        raise TimeLimitError(
            f"the task's execution_timeout of {limit} passed; its job was "
            + ("told to stop" if was_running else "no longer running, or never created"),
            job_name=name,
            next_step="raise execution_timeout, or max_run where the job itself shall end earlier",
        )
