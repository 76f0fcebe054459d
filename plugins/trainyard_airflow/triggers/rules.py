"""Trigger that evaluates rules on a running job's statistics in S3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import TrainingRunError
from trainyard.rules.watch_plan import WatchPlan
from trainyard.runs.notifier import Notifier
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.hooks.known_members import known_members
from trainyard_airflow.triggers.observed_task import ObservedTask
from trainyard_airflow.triggers.rule_look import watch_job
from trainyard_airflow.triggers.stored import StoredTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow.triggers.base import TriggerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchArguments:
    """Job to watch with rules, and the settings of the watch.

    Attributes:
        job_name: the training job; it may not exist yet.
        absent_s: seconds to wait for the job to exist. If it does not exist by then, the next step depends on
            the watched task. If this task has not begun, or waits for a retry, a reschedule or a person's
            answer (`ObservedTask.rests`), the trigger waits for the job again. Otherwise the trigger fires, and
            the watching task resumes in a worker.
        plan: the rules, and the reactions to their issues.
        connection: the connection of the job and its statistics.
        notifier: recipient of messages on issues, or None.
        task: the watched task; None for a job without a task.
    """

    job_name: str
    absent_s: float
    plan: WatchPlan
    connection: ConnectionArguments
    notifier: Notifier | None = None
    task: ObservedTask | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the watch from a trigger's arguments, which this or another release stored; unknown keys are ignored.

        Raises:
            KeyError: the job's name or the connection is missing.
            ValueError: an argument contains a value that is unknown to this release.
            TypeError: an argument contains a value of a wrong type.
        """
        task = data.get("watched_task")
        plan = WatchPlan.from_dict(known_members(WatchPlan, data.get("plan") or {}))
        return cls(
            job_name=str(data["job_name"]),
            absent_s=float(data.get("absent_s", plan.absence_s())),
            plan=plan,
            connection=ConnectionArguments.from_dict(data["connection"]),
            notifier=Notifier.from_dict(data.get("notifier")),
            task=ObservedTask(**known_members(ObservedTask, task)) if task else None,
        )


class RulesTrigger(StoredTrigger):
    """Watches one job to its end, and fires once. Clearing or marking the watching task does not affect the job.

    After a restart of the triggerer, the trigger reads the statistics from their beginning. If it has already
    stopped the job, a tag on the job records this.

    Args:
        arguments: `job_name`, `absent_s`, `plan`, `connection`, `notifier` and `watched_task` for
            `WatchArguments`, and `deferred_at` for `StoredTrigger`.
    """

    @property
    def watch(self) -> WatchArguments:
        """The job to watch.

        Raises:
            KeyError: the job's name or the connection is missing.
            ValueError: an argument contains a value that is unknown to this release.
            TypeError: an argument contains a value of a wrong type.
        """
        return WatchArguments.from_dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event with the key `watched`, `absent` or `error`.

        Raises:
            Exception: this release cannot read the arguments, or has a bug; Airflow resumes the task with the error.
        """
        yield await self.event(self._watched())

    async def _watched(self) -> dict[str, Any]:
        """Return the event: the findings, an error, or `absent` if there is no job and its task will not start soon."""
        watch = self.watch
        absent_s = watch.absent_s
        while True:
            try:
                result = await watch_job(
                    watch.job_name,
                    plan=watch.plan,
                    connection=watch.connection,
                    absent_s=absent_s,
                    notifier=watch.notifier,
                )
            except TrainingRunError as error:
                return {
                    "error": error.to_dict(),
                    "job_name": watch.job_name,
                    "absent_s": absent_s,
                }
            if "absent" not in result or not await self._waits_on(watch.task):
                return {**result, "absent_s": absent_s}
            absent_s = watch.plan.absence_s(absent_s)

    async def _waits_on(self, task: ObservedTask | None) -> bool:
        """Return whether to wait for the missing job once more.

        The result is True if the job's task waits for a retry, a reschedule or an answer, or has not begun. In
        `dag.test()` it is False for a task that has not begun, because that task would run only after this trigger.
        Without a task, it is False.
        """
        if task is None:
            return False
        return await task.rests(or_not_begun=self.task_instance is not None)
