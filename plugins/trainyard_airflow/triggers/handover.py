"""Note of a job's triggerer on the job, so that a trigger that was taken over does not stop it. Pure.

A triggerer that stood still for longer than its health threshold loses its triggers to another one, and cancels its own
copies when it wakes, with the same message as if somebody had cleared the tasks (Airflow 3.3.2,
`TriggerRunnerSupervisor.update_triggers`). Stopping the job then would end a training that another trigger follows.
Airflow knows whether the task is still deferred, and is asked first. It may be silent: its triggerer answers from an
API server that it builds for the first question, 60 s on a busy machine. The job's own tags answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLLOWER_KEY = "trainyard:follower"


FRESH_S = 15.0
"""After its deferral a task's first trigger has begun, and no triggerer can have lost it: half of Airflow's default
`[triggerer] triggerer_health_check_threshold`."""


def follower(task_instance: Any, triggerer: str, *, deferred_at: float = 0.0) -> str | None:
    """Return the mark of a trigger, `<task instance>:<deferral>/<triggerer's process>`; None outside a triggerer.

    A task instance has another id after each retry and clear, and keeps it while it is deferred. A trigger that starts
    within `FRESH_S` of the deferral need not be noted, unless the job was there before: nobody else can have followed
    the job for that deferral.
    """
    return None if task_instance is None else f"{task_instance.id}:{deferred_at:.3f}/{triggerer}"


def is_taken_over(tags: Iterable[Mapping[str, str]], *, from_follower: str | None) -> bool:
    """Return whether another triggerer follows the job for the same try of the task.

    Args:
        tags: of the job, as the service lists them.
        from_follower: the trigger that asks.
    """
    noted = _noted(tags)
    if from_follower is None or noted is None or noted == from_follower:
        return False
    return noted.partition("/")[0] == from_follower.partition("/")[0]


def is_of_later_try(tags: Iterable[Mapping[str, str]], *, from_follower: str | None) -> bool:
    """Return whether the job's note is that of a trigger of a later try: the task was cleared and waits again.

    A task instance's id is a UUID of version 7, which begins with its time: a later try's is the larger text.

    Args:
        tags: of the job, as the service lists them.
        from_follower: the trigger that asks.
    """
    noted = _noted(tags)
    return None not in (noted, from_follower) and _try_of(noted) > _try_of(from_follower)


def _noted(tags: Iterable[Mapping[str, str]]) -> str | None:
    return {tag["Key"]: tag["Value"] for tag in tags}.get(FOLLOWER_KEY)


def _try_of(follower: str | None) -> str:
    return str(follower).partition(":")[0]
