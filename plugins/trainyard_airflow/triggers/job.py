"""Trigger of a deferred job task."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from trainyard.errors import TrainingRunError
from trainyard_airflow.triggers.follow import follow_by_feed, follow_job
from trainyard_airflow.triggers.followed import Followed
from trainyard_airflow.triggers.handover import FRESH_S, follower
from trainyard_airflow.triggers.job_feed import FED
from trainyard_airflow.triggers.kill_job import kill_job
from trainyard_airflow.triggers.observed_task import ObservedTask
from trainyard_airflow.triggers.stored import StoredTrigger
from trainyard_airflow.triggers.uncancelled import uncancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.triggers.base import TriggerEvent

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.triggers.job_feed import FeedState

HAS_ON_KILL = hasattr(BaseTrigger, "on_kill")
"""True if Airflow notifies a trigger of the end of its task; 3.2 does not."""
_CANCELLED_LIMIT_S = 120.0
"""Seconds that a cancelled trigger waits for Airflow 3.2 to report its task's state."""
_LATE_S = 60.0
_EARLIER_LINES_S = 60.0
"""Seconds of a job's log that are forwarded again after a deferral or a restart of the trigger."""


class JobTrigger(StoredTrigger):
    """Follows one job to its end, and fires once with the job's status or an error.

    The job is stopped if the task is marked failed or successful, cleared or deleted. The job is not stopped if
    the triggerer is restarted, or if this trigger ends because another triggerer has taken it over. The trigger
    then starts again from its arguments, and reads the job's log from one minute before this new start. The
    previous reading position is not known, because Airflow keeps a trigger's log on the triggerer's own disk.

    Args:
        arguments: the fields of `Followed.to_dict`; `echoed`, a mapping that is returned with the event;
            `deferred_at` for `StoredTrigger`; and `not_before`, epoch seconds, until which the trigger only
            waits.
    """

    @property
    def followed(self) -> Followed:
        """The job to follow.

        Raises:
            KeyError: the kind or the name of the job is missing.
            ValueError: an argument contains a value that is unknown to this release.
            TypeError: an argument contains a value of a wrong type.
        """
        return Followed.from_dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event with `job` (its name and status) or `error`, and the members of `echoed`.

        Raises:
            CancelledError: Airflow ended the trigger.
            Exception: this release cannot read the arguments, or has a bug; Airflow resumes the task with the error.
        """
        try:
            yield await self.event(self._followed_to_end())
        except asyncio.CancelledError:
            if not HAS_ON_KILL:
                await uncancelled(self._stop_if_ended())
            raise

    async def _stop_if_ended(self) -> None:
        """Stop the job if its task is no longer deferred; needed for Airflow 3.2, which does not call `on_kill`.

        Airflow 3.2 cancels a trigger in the same way for a killed task and for a shutdown. Only the task's state
        shows the difference: a task that is still deferred was not killed.
        """
        if self._task is not None and await self._task.has_left(_CANCELLED_LIMIT_S):
            await self.on_kill()

    async def _followed_to_end(self) -> dict[str, Any]:
        """Return the event of the job's end."""
        deferred_at = self.deferred_at
        begins_at = max(deferred_at, float(self.arguments.get("not_before") or 0.0))
        # The pause comes first: it must also limit the load of a trigger that then fails.
        await asyncio.sleep(max(0.0, begins_at - time.time()))
        followed, echoed = self.followed, dict(self.arguments.get("echoed") or {})
        waited_s = time.time() - begins_at
        is_late = waited_s > _LATE_S
        if is_late and followed.stream_logs:
            self.log.info(
                "The task has waited for %.0f s, so its triggerer was restarted: the job's log continues with the last "
                "minute. Earlier lines are in CloudWatch, by the task's link.",
                waited_s,
            )
        try:
            log_since = time.time() if is_late else deferred_at
            is_fresh = 0.0 <= time.time() - deferred_at < FRESH_S and not echoed.get("was_attached")
            noted = None if is_fresh else self._follower
            ended = await self._ended(
                followed, follower=noted, began_at=deferred_at, log_since=log_since
            )
        except TrainingRunError as error:
            return {"error": error.to_dict(), **echoed}
        return {"job": {"name": followed.job_name, "status": ended.status}, **echoed}

    async def _ended(
        self, followed: Followed, *, follower: str | None, began_at: float, log_since: float
    ) -> FeedState | JobSnapshot:
        if followed.kind not in FED:
            return await follow_job(followed, follower=follower)
        return await follow_by_feed(
            followed,
            follower=follower,
            began_at=began_at,
            log_since=log_since - _EARLIER_LINES_S,
        )

    async def on_kill(self) -> None:
        """Stop the job after the task was cleared, marked or deleted.

        If another triggerer now runs the trigger, the job is not stopped.
        """
        self.log.warning("Task was killed: stopping job %s", self.followed.job_name)
        await uncancelled(kill_job(self.followed, follower=self._follower, task=self._task))

    @property
    def _task(self) -> ObservedTask | None:
        ti: Any = self.task_instance
        return (
            None
            if ti is None
            else ObservedTask(
                dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=ti.map_index
            )
        )

    @property
    def _follower(self) -> str | None:
        # Airflow 3.3.2 leaves `triggerer_job_id` None, so the process identifies the triggerer.
        triggerer = f"{socket.gethostname()}:{os.getpid()}"
        return follower(self.task_instance, triggerer, deferred_at=self.deferred_at)
