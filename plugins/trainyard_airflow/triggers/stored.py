"""Base of triggers that Airflow's database stores, and the minimum time from a task's deferral to resumption."""

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
    """Base of triggers that fire once and accept arguments of any release.

    Another release may have written the trigger's row in Airflow's database. The constructor accepts any arguments,
    because an exception in it ends the whole triggerer (Airflow 3.3.2: `TriggerRunner.create_triggers` catches only
    TypeError). An exception in `run` fails only this trigger, and the task defers again.

    Args:
        arguments: the arguments for `run`, and `deferred_at`, the time of the deferral in epoch seconds (by default
            now). `serialize` returns them unchanged.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.arguments = {"deferred_at": time.time(), **arguments}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments

    @property
    def deferred_at(self) -> float:
        """Time of the task's deferral, epoch seconds.

        Raises:
            ValueError: the stored time is not a number.
            TypeError: the stored time has a wrong type.
        """
        return float(self.arguments["deferred_at"])

    async def event(self, waiting: Coroutine[Any, Any, dict[str, Any]]) -> TriggerEvent:
        """Return the event with the coroutine's result, or raise its error, once the task may be resumed."""
        try:
            result = await keeping_message(waiting)
        finally:
            resumed_at = self.deferred_at + settled_after_s()
            await asyncio.sleep(max(0.0, resumed_at - time.time()))
        return TriggerEvent(result)  # type: ignore[no-untyped-call]  # see above


def settled_after_s() -> float:
    """Return the minimum seconds between a task's deferral and its resumption: two heartbeat intervals.

    The worker process of a task ends with the deferral, and its end is reported up to one heartbeat interval
    later (Airflow 3.3.2, `ActivitySubprocess._monitor_subprocess`). If the task already runs again when the
    scheduler reads this report, the scheduler considers the task lost and fails it. This happened with jobs
    that had ended before the deferral. The second interval is for the scheduler, which must read the report.
    """
    return 2.0 * conf.getint("workers", "min_heartbeat_interval")
