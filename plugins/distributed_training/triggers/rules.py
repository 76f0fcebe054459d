"""The trigger that watches a running job by rules: reads its statistics in S3 as they come, and reacts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from distributed_training.hooks.aws_clients import ConnectionArguments
from distributed_training.triggers.cancellation import keeping_message
from distributed_training.triggers.job import settled_after_s
from distributed_training.triggers.rule_look import watch_job
from distributed_training.triggers.watched_task import LONGEST_ABSENCE_S, WatchedTask
from include.errors import TrainingRunError
from include.rules.watch_plan import WatchPlan
from include.runs.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RulesTrigger(BaseTrigger):
    """Watches one job until it has ended; fires once. Clearing or marking the task leaves the job alone.

    A restart begins again: it reads the statistics from their beginning, and finds a job that it stopped.

    Args:
        job_name: the training job; it need not be there yet.
        absent_s: how long it may not be there before the task looks why, or, again and again, this trigger whether
            the watched task rests: only where it does not, a worker is needed.
        plan: the fields of `WatchPlan.to_dict`.
        connection: the fields of `ConnectionArguments.to_dict`.
        deferred_at: when the task began to wait, epoch seconds.
        notifier: the fields of `Notifier.to_dict`: whom to tell of issues; None tells nobody.
        watched_task: the fields of `WatchedTask`; None for a job that is no task's.
    """

    def __init__(
        self,
        *,
        job_name: str,
        absent_s: float,
        plan: dict[str, Any],
        connection: dict[str, Any],
        deferred_at: float | None = None,
        notifier: dict[str, Any] | None = None,
        watched_task: dict[str, str] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.job_name, self.absent_s = job_name, absent_s
        self.plan, self.connection, self.notifier = plan, connection, notifier
        self.watched_task = watched_task
        self.deferred_at = time.time() if deferred_at is None else deferred_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = (
            "job_name",
            "absent_s",
            "plan",
            "connection",
            "deferred_at",
            "notifier",
            "watched_task",
        )
        arguments = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `watched`, `absent` or `error`."""
        try:
            told = await keeping_message(self._watched())
        except TrainingRunError as error:
            told = {"error": error.to_dict(), "absent_s": self.absent_s}
        await asyncio.sleep(max(0.0, self.deferred_at + settled_after_s() - time.time()))
        yield TriggerEvent(told)  # type: ignore[no-untyped-call]  # see above

    async def _watched(self) -> dict[str, Any]:
        """Return what the watching found; only then that the job is absent, when the watched task does not rest."""
        task = WatchedTask(**self.watched_task) if self.watched_task else None
        absent_s = self.absent_s
        while True:
            told = await watch_job(
                self.job_name,
                plan=WatchPlan.from_dict(self.plan),
                connection=ConnectionArguments(**self.connection),
                absent_s=absent_s,
                notifier=Notifier.from_dict(self.notifier),
            )
            if "absent" not in told or task is None or not await task.rests():
                return {**told, "absent_s": absent_s}
            absent_s = min(LONGEST_ABSENCE_S, 2 * absent_s)
