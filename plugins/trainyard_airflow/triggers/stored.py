"""A trigger as a row of Airflow's database: its arguments, and when the task that wrote it may be resumed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard_airflow.triggers.uncancelled import keeping_message

if TYPE_CHECKING:
    from collections.abc import Coroutine


class StoredTrigger(BaseTrigger):
    """A trigger that fires once, and bears arguments of any release.

    A row of Airflow's database may be another release's: the constructor takes anything, because an exception in it
    ends the whole triggerer (Airflow 3.3.2, `TriggerRunner.create_triggers` bears TypeError only). What `run` raises
    fails this trigger alone, and the task defers again.

    Args:
        arguments: what `run` reads, and `deferred_at`, when the task began to wait, epoch seconds. Handed on by
            `serialize` as they came.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.arguments = {"deferred_at": time.time(), **arguments}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments

    @property
    def deferred_at(self) -> float:
        """When the task began to wait, epoch seconds.

        Raises:
            ValueError: the arguments cannot be read by this release.
            TypeError: likewise.
        """
        return float(self.arguments["deferred_at"])

    async def event(self, waiting: Coroutine[Any, Any, dict[str, Any]]) -> TriggerEvent:
        """Return the event of what the waiting returns, or raise what it raises; not before the task may be resumed."""
        try:
            told = await keeping_message(waiting)
        finally:
            resumed_at = self.deferred_at + settled_after_s()
            await asyncio.sleep(max(0.0, resumed_at - time.time()))
        return TriggerEvent(told)  # type: ignore[no-untyped-call]  # see above


def settled_after_s() -> float:
    """Return how long after its deferral a task may be resumed, in seconds.

    The worker that deferred notices its own end up to one heartbeat interval later (Airflow 3.3.2,
    `ActivitySubprocess._monitor_subprocess`). A scheduler that reads that end when the task runs again already takes
    the task for lost and fails it; seen with jobs that had ended before the deferral. The second interval is for the
    scheduler itself.
    """
    return 2.0 * conf.getint("workers", "min_heartbeat_interval")
