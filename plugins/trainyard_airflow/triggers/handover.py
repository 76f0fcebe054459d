"""Job tag that names the trigger that follows the job, so that a superseded trigger does not stop the job.

A triggerer that hangs for longer than its health threshold loses its triggers to another triggerer. When it
resumes, it cancels its own copies with the same message as for a cleared task (Airflow 3.3.2,
`TriggerRunnerSupervisor.update_triggers`). Stopping the job then would end a training that another trigger
follows.

A cancelled trigger therefore first asks Airflow whether the task is still deferred. Airflow may not answer
in time: the triggerer builds an API server for its first query, which takes 60 s on a busy machine. The
job's tags are available at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLLOWER_KEY = "trainyard:follower"


FRESH_S = 15.0
"""Seconds after a deferral in which no other triggerer can have taken over the task's trigger.

Half of Airflow's default `[triggerer] triggerer_health_check_threshold`."""


def follower(task_instance: Any, triggerer: str, *, deferred_at: float = 0.0) -> str | None:
    """Return a trigger's identity, `<task instance>:<deferral>/<triggerer's process>`; None outside a triggerer.

    A task instance gets a new id with each retry and clear, and keeps its id while it is deferred. The caller
    stores the identity as a tag of the job. The caller omits the tag if the task created the job and the
    trigger starts within `FRESH_S` seconds after the deferral. In that case no other trigger can have followed
    the job yet.

    Args:
        task_instance: the trigger's task instance, or None.
        triggerer: host and process of the triggerer.
        deferred_at: time of the deferral, epoch seconds.
    """
    return None if task_instance is None else f"{task_instance.id}:{deferred_at:.3f}/{triggerer}"


def is_taken_over(tags: Iterable[Mapping[str, str]], *, from_follower: str | None) -> bool:
    """Return whether another triggerer follows the job for the same deferral of the task.

    Args:
        tags: the job's tags in the format of ListTags.
        from_follower: identity of the calling trigger; None returns False.
    """
    noted = _noted(tags)
    if from_follower is None or noted is None or noted == from_follower:
        return False
    return noted.partition("/")[0] == from_follower.partition("/")[0]


def is_of_later_try(tags: Iterable[Mapping[str, str]], *, from_follower: str | None) -> bool:
    """Return whether the job has the tag of a trigger that belongs to a later try of the task.

    If so, the task was cleared and is deferred again. The tag contains the id of a task instance, a UUID of
    version 7, which begins with a timestamp. The id of a later try is therefore greater in text order.

    Args:
        tags: the job's tags in the format of ListTags.
        from_follower: identity of the calling trigger. If it is None, the result is False.
    """
    noted = _noted(tags)
    return None not in (noted, from_follower) and _try_of(noted) > _try_of(from_follower)


def _noted(tags: Iterable[Mapping[str, str]]) -> str | None:
    return {tag["Key"]: tag["Value"] for tag in tags}.get(FOLLOWER_KEY)


def _try_of(follower: str | None) -> str:
    return str(follower).partition(":")[0]
