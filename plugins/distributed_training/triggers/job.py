"""The trigger of a deferred job task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from distributed_training.triggers.follow import Followed, follow_job, stop_job
from include.errors import TrainingRunError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class JobTrigger(BaseTrigger):
    """Follows one job and fires once, with its final snapshot or with the error that ended the following.

    Mark failed, mark success and clear stop the job. A restart of the triggerer does not: the
    trigger starts again from these arguments and reads the log from its beginning.

    Args:
        echoed: what the task wants back with the event, JSON-safe.
        followed: the fields of `Followed.to_dict`.
    """

    def __init__(self, *, echoed: dict[str, Any] | None = None, **followed: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base is not typed
        self.echoed = echoed or {}
        self.followed = Followed.from_dict(followed)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        arguments = {**self.followed.to_dict(), "echoed": self.echoed}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `snapshot` or `error`, with what is to be echoed."""
        try:
            snapshot = await follow_job(self.followed)
        except TrainingRunError as error:
            told = {"error": error.to_dict()}
        else:
            told = {"snapshot": snapshot.to_dict()}
        yield TriggerEvent({**told, **self.echoed})  # type: ignore[no-untyped-call]  # see above

    async def on_kill(self) -> None:
        """Stop the job: somebody cleared the task or marked it."""
        self.log.warning("Task was killed: stopping job %s", self.followed.job_name)
        await stop_job(self.followed)
