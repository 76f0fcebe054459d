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
from distributed_training.triggers.follow import Followed, follow_job
from distributed_training.triggers.handover import follower
from distributed_training.triggers.stopping import kill_job
from include.errors import TrainingRunError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


_LATE_S = 60.0


def settled_after_s() -> float:
    """Return how long after its deferral a task may be resumed, in seconds.

    The worker that deferred notices its own end up to one heartbeat interval later (Airflow 3.3.2,
    `ActivitySubprocess._monitor_subprocess`). A scheduler that reads that end when the task runs again already takes
    the task for lost and fails it; seen with jobs that had ended before the deferral. The second interval is for the
    scheduler itself.
    """
    return 2.0 * conf.getint("workers", "min_heartbeat_interval")


class JobTrigger(BaseTrigger):
    """Follows one job and fires once, with its final snapshot or with the error that ended the following.

    Mark failed, mark success, clear and deletion of the task stop the job. A restart of the triggerer does
    not, nor does the end of a trigger that another triggerer took over: the trigger starts again from these
    arguments, and says that it reads the log from its beginning (Airflow keeps what a trigger prints on the
    triggerer's own disk: nothing there says how far the last one came).

    Args:
        echoed: what the task wants back with the event, JSON-safe.
        deferred_at: when the task began to wait, epoch seconds.
        followed: the fields of `Followed.to_dict`.
    """

    def __init__(
        self,
        *,
        echoed: dict[str, Any] | None = None,
        deferred_at: float | None = None,
        **followed: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.echoed = echoed or {}
        self.deferred_at = time.time() if deferred_at is None else deferred_at
        self.followed = Followed.from_dict(followed)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        arguments = {
            **self.followed.to_dict(),
            "echoed": self.echoed,
            "deferred_at": self.deferred_at,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `snapshot` or `error`, with what is to be echoed."""
        waited_s = time.time() - self.deferred_at
        if waited_s > _LATE_S and self.followed.stream_logs:
            self.log.info(
                "The task waits for %.0f s already, so its triggerer was restarted: the job's log "
                "starts again from its beginning",
                waited_s,
            )
        try:
            snapshot = await keeping_message(follow_job(self.followed, follower=self._follower))
        except TrainingRunError as error:
            told = {"error": error.to_dict()}
        else:
            told = {"snapshot": snapshot.to_dict()}
        await asyncio.sleep(max(0.0, self.deferred_at + settled_after_s() - time.time()))
        yield TriggerEvent({**told, **self.echoed})  # type: ignore[no-untyped-call]  # see above

    async def on_kill(self) -> None:
        """Stop the job: somebody cleared, marked or deleted the task; not if another triggerer took it over."""
        self.log.warning("Task was killed: stopping job %s", self.followed.job_name)
        await uncancelled(kill_job(self.followed, follower=self._follower))

    @property
    def _follower(self) -> str | None:
        # Airflow 3.3.2 leaves `triggerer_job_id` None: the process tells two triggerers apart.
        return follower(self.task_instance, f"{socket.gethostname()}:{os.getpid()}")
