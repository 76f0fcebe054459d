"""Whether a cancelled trigger's task was killed, or is waited for by another triggerer.

A triggerer that stood still for longer than its health threshold loses its triggers to another one, and cancels its own
copies when it wakes, with the same message as if somebody had cleared the tasks (Airflow 3.3.2,
`TriggerRunnerSupervisor.update_triggers`). Stopping the job then would end a training that another trigger follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ASK_LIMIT_S = 4.0
TRY_XCOM_KEY = "job_try"
"""The try of the task that waits for its job; a cleared task that waits again already has another."""


async def is_waited_for_elsewhere(task_instance: Any) -> bool:
    """Return whether this try of the task is still deferred.

    Args:
        task_instance: the trigger's; None outside a triggerer, where nobody else can wait.

    Raises:
        Exception: Airflow refuses to answer, by an error of its choice, or does not in time (TimeoutError).
    """
    if task_instance is None:
        return False
    async with asyncio.timeout(ASK_LIMIT_S):
        return await asyncio.to_thread(_is_deferred, task_instance)


def _is_deferred(ti: Any) -> bool:
    from airflow.sdk.bases.xcom import BaseXCom
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: Mapping[str, Mapping[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
    )
    if "deferred" not in states.get(ti.run_id, {}).values():
        return False
    waiting_try = BaseXCom.get_one(
        key=TRY_XCOM_KEY,
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=ti.map_index,
    )
    return waiting_try in (None, ti.try_number)
