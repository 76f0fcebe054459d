"""The task whose job is watched, and whether it rests while its job is absent."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_ANSWER_LIMIT_S = 30.0
NOT_BEGUN = frozenset({None, "none", "scheduled", "queued"})
RESTING = frozenset({"up_for_retry", "up_for_reschedule", "awaiting_input"})
"""Neither ended nor about to: the next attempt comes later, perhaps after a human's answer, in a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTask:
    """A task of the same run."""

    dag_id: str
    run_id: str
    task_id: str

    def state(self, get_task_states: Callable[..., Mapping[str, Any]]) -> str | None:
        """Return the task's state; None where it has none yet.

        Args:
            get_task_states: the task SDK's, which a worker has on its own task instance.
        """
        states = get_task_states(dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id])
        return dict(states.get(self.run_id, {})).get(self.task_id)

    async def rests(self) -> bool:
        """Return whether the task rests, as the triggerer learns it; False if Airflow is silent."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            asking = asyncio.to_thread(self.state, RuntimeTaskInstance.get_task_states)
            state = await asyncio.wait_for(asking, _ANSWER_LIMIT_S)
        except Exception as error:  # noqa: BLE001  # whatever ails Airflow, a worker is told of it
            log.warning("Airflow does not tell the state of task %s (%s)", self.task_id, error)
            return False
        return state in RESTING
