"""The memory of a running task, kept in Airflow's task state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard_airflow.jobs.task_memory import TaskMemory

if TYPE_CHECKING:
    from airflow.sdk import Context


def task_memory(context: Context) -> TaskMemory:
    """Return what a task remembers across its tries; nothing if this Airflow has no task state store."""
    store: Any = context.get("task_state_store")
    if store is None:
        return TaskMemory(None)
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return TaskMemory(store, forever=NEVER_EXPIRE)
