"""The trigger of a deferred job task."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from distributed_training.triggers.cancellation import keeping_message, uncancelled
from distributed_training.triggers.follow import Followed, follow_by_feed, follow_job
from distributed_training.triggers.handover import FRESH_S, follower
from distributed_training.triggers.job_feed import FED
from distributed_training.triggers.stopping import kill_job
from include.errors import TrainingRunError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from distributed_training.triggers.job_feed import JobState
    from include.sagemaker_api.snapshot import JobSnapshot

_LATE_S = 60.0
_EARLIER_LINES_S = 60.0
"""Of a job's log, before its task deferred or its trigger started again, are passed on."""


def settled_after_s() -> float:
    """Return how long after its deferral a task may be resumed, in seconds.

    The worker that deferred notices its own end up to one heartbeat interval later (Airflow 3.3.2,
    `ActivitySubprocess._monitor_subprocess`). A scheduler that reads that end when the task runs again already takes
    the task for lost and fails it; seen with jobs that had ended before the deferral. The second interval is for the
    scheduler itself.
    """
    return 2.0 * conf.getint("workers", "min_heartbeat_interval")


class JobTrigger(BaseTrigger):
    """Follows one job and fires once, with its status or with the error that ended the following.

    Mark failed, mark success, clear and deletion of the task stop the job. A restart of the triggerer does
    not, nor does the end of a trigger that another triggerer took over: the trigger starts again from these
    arguments, and reads the log from a minute before (Airflow keeps what a trigger prints on the triggerer's own disk:
    nothing there says how far the last one came).

    A row of Airflow's database may be another release's: the constructor takes anything, because an exception in it
    ends the whole triggerer (Airflow 3.3.2, `TriggerRunner.create_triggers` bears TypeError only). What `run` raises
    fails this trigger alone, and the task defers again.

    Args:
        arguments: the fields of `Followed.to_dict`, with `echoed`, what the task wants back with the event, and
            `deferred_at`, when it began to wait, epoch seconds. Handed on by `serialize` as they came.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.arguments = {"deferred_at": time.time(), **arguments}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments

    @property
    def followed(self) -> Followed:
        """What to follow.

        Raises:
            KeyError: the arguments cannot be read by this release.
            ValueError: likewise.
            TypeError: likewise.
        """
        return Followed.from_dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `job`, its name and status, or `error`, with what is to be echoed.

        Raises:
            Exception: this release cannot read the arguments, or has a fault: Airflow resumes the task with that.
        """
        deferred_at = float(self.arguments["deferred_at"])
        try:
            told = {**await keeping_message(self._followed_to_end(deferred_at)), **self._echoed}
        finally:
            await asyncio.sleep(max(0.0, deferred_at + settled_after_s() - time.time()))
        yield TriggerEvent(told)  # type: ignore[no-untyped-call]  # see above

    @property
    def _echoed(self) -> dict[str, Any]:
        return dict(self.arguments.get("echoed") or {})

    async def _followed_to_end(self, deferred_at: float) -> dict[str, Any]:
        """Return the event of the job's end."""
        followed = self.followed
        waited_s = time.time() - deferred_at
        is_late = waited_s > _LATE_S
        if is_late and followed.stream_logs:
            self.log.info(
                "The task waits for %.0f s already, so its triggerer was restarted: the job's log goes on with the "
                "last minute. CloudWatch has what was printed before, by the task's link.",
                waited_s,
            )
        try:
            log_since = time.time() if is_late else deferred_at
            noted = None if 0.0 <= waited_s < FRESH_S else self._follower
            ended = await self._ended(
                followed, follower=noted, began_at=deferred_at, log_since=log_since
            )
        except TrainingRunError as error:
            return {"error": error.to_dict()}
        return {"job": {"name": followed.job_name, "status": ended.status}}

    async def _ended(
        self, followed: Followed, *, follower: str | None, began_at: float, log_since: float
    ) -> JobState | JobSnapshot:
        if followed.kind not in FED:
            return await follow_job(followed, follower=follower)
        return await follow_by_feed(
            followed,
            follower=follower,
            began_at=began_at,
            log_since=log_since - _EARLIER_LINES_S,
        )

    async def on_kill(self) -> None:
        """Stop the job: somebody cleared, marked or deleted the task; not if another triggerer took it over."""
        self.log.warning("Task was killed: stopping job %s", self.followed.job_name)
        await uncancelled(kill_job(self.followed, follower=self._follower))

    @property
    def _follower(self) -> str | None:
        # Airflow 3.3.2 leaves `triggerer_job_id` None: the process tells two triggerers apart.
        triggerer = f"{socket.gethostname()}:{os.getpid()}"
        deferred_at = float(self.arguments["deferred_at"])
        return follower(self.task_instance, triggerer, deferred_at=deferred_at)
