"""State of a task as Airflow reports it to a worker or a triggerer."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import exceptions

from trainyard_airflow.triggers.uncancelled import uncancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_ANSWER_LIMIT_S = 30.0
NOT_BEGUN = frozenset({None, "none", "scheduled", "queued"})
_ASKING = "awaiting_input" if hasattr(exceptions, "TaskAwaitingInput") else "deferred"
"""State of a task that waits for a person's answer; Airflow 3.2 has no separate state for it."""
RESTING = frozenset({"up_for_retry", "up_for_reschedule", _ASKING})
"""States of a task that waits for a retry, a reschedule or a person's answer; the wait may be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTask:
    """Key of a task instance, for queries of its state."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    def state(self, get_task_states: Callable[..., Mapping[str, Any]]) -> str | None:
        """Return the task's state, or None if it has none yet.

        Args:
            get_task_states: the method `get_task_states` of the worker's own task instance (from the task SDK).
        """
        return self._among(get_task_states(**self._question()))

    async def rests(self, *, or_not_begun: bool = False) -> bool:
        """Return whether the task waits for a retry, a reschedule or a person's answer (a state in `RESTING`).

        The result is False if Airflow's supervisor does not answer within 30 s. This method works only in a
        triggerer.

        Args:
            or_not_begun: whether to return True also for a task that has not begun, such as a task in a full pool.
        """
        states = await self._reported(_ANSWER_LIMIT_S)
        if states is None:
            return False
        state = self._among(states)
        return state in RESTING or (or_not_begun and state in NOT_BEGUN)

    async def is_deferred(self, limit_s: float) -> bool:
        """Return whether the task waits for a trigger; False if Airflow does not answer within `limit_s` seconds."""
        states = await self._reported(limit_s)
        return states is not None and self._among(states) == "deferred"

    async def has_left(self, limit_s: float) -> bool:
        """Return whether the task no longer waits for a trigger; False if Airflow does not answer in time."""
        states = await self._reported(limit_s)
        return states is not None and self._among(states) != "deferred"

    async def _reported(self, limit_s: float) -> Mapping[str, Any] | None:
        """Return the states by run and task, or None if Airflow's supervisor does not answer in time.

        The query runs on the event loop. In threads, a thousand triggers cancelled at once would wait for free threads.
        """
        from airflow.sdk.execution_time import task_runner
        from airflow.sdk.execution_time.comms import GetTaskStates

        try:
            asking = task_runner.SUPERVISOR_COMMS.asend(GetTaskStates(**self._question()))
            # Airflow 3.2 ends the triggerer if the response to a query is not read.
            answer: Any = await asyncio.wait_for(uncancelled(asking), limit_s)
            return dict(answer.task_states)
        except Exception as error:  # noqa: BLE001  # after any error, the caller continues without an answer
            log.warning("Airflow does not report the state of task %s (%r)", self.task_id, error)
            return None

    def _question(self) -> dict[str, Any]:
        return {
            "dag_id": self.dag_id,
            "map_index": None if self.map_index < 0 else self.map_index,
            "task_ids": [self.task_id],
            "run_ids": [self.run_id],
        }

    def _among(self, states: Mapping[str, Any]) -> str | None:
        key = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        state = dict(states.get(self.run_id, {})).get(key)
        return None if state is None else str(state)
