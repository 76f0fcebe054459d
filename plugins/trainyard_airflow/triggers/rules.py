"""The trigger that watches a running job by rules: reads its statistics in S3 as they come, and reacts."""

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
    """A job for a trigger of rules to watch, and how.

    Attributes:
        job_name: the training job; it need not be there yet.
        absent_s: how long it may not be there before the task looks why, or, again and again, this trigger whether
            the watched task rests: only where it does not, a worker is needed.
        notifier: whom to tell of issues; None tells nobody.
        task: the watched task; None for a job that is no task's.
    """

    job_name: str
    absent_s: float
    plan: WatchPlan
    connection: ConnectionArguments
    notifier: Notifier | None = None
    task: ObservedTask | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the watch of a trigger's arguments, in this release or in another; unknown keys are ignored.

        Raises:
            KeyError: no job or connection is named.
            ValueError: a member is none that this release knows.
            TypeError: likewise.
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
    """Watches one job until it has ended; fires once. Clearing or marking the task leaves the job alone.

    A restart begins again: it reads the statistics from their beginning, and finds a job that it stopped.

    Args:
        arguments: `job_name`, `absent_s`, `plan`, `connection`, `notifier`, `watched_task`, as `WatchArguments` reads
            them, and `deferred_at`, as `StoredTrigger` has it.
    """

    @property
    def watch(self) -> WatchArguments:
        """The job to watch.

        Raises:
            KeyError: the arguments cannot be read by this release.
            ValueError: likewise.
            TypeError: likewise.
        """
        return WatchArguments.from_dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `watched`, `absent` or `error`.

        Raises:
            Exception: this release cannot read the arguments, or has a fault: Airflow resumes the task with that.
        """
        yield await self.event(self._watched())

    async def _watched(self) -> dict[str, Any]:
        """Return the findings of the watch, or that the job is absent while the watched task does not rest."""
        watch = self.watch
        absent_s = watch.absent_s
        while True:
            try:
                told = await watch_job(
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
            if "absent" not in told or watch.task is None or not await watch.task.rests():
                return {**told, "absent_s": absent_s}
            absent_s = watch.plan.absence_s(absent_s)
