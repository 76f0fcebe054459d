"""Stop of a killed task's job, with retries while the service is unavailable."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.failures import is_unknown_job
from trainyard.sagemaker_api.job_kinds import JOB_APIS, KILLED_TAG
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.hooks.shared_clients import shared_clients
from trainyard_airflow.triggers.handover import FOLLOWER_KEY, is_of_later_try, is_taken_over
from trainyard_airflow.triggers.pace import backoff_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_airflow.triggers.followed import Followed
    from trainyard_airflow.triggers.observed_task import ObservedTask

log = logging.getLogger(__name__)

# Airflow cancels a trigger's on_kill after 30 s ([triggerer] on_kill_timeout).
KILL_LIMIT_S = 28.0
_ONE_TRY_S = 8.0
_LONGEST_PAUSE_S = 4.0
_LOOK_S = 2.0
STATE_LIMIT_S = 8.0
"""Seconds that a cancelled trigger waits for Airflow to report its task's state."""
NOTE_LIMIT_S = 8.0
"""Seconds that a cancelled trigger waits for another trigger's tag on the job; more only if the tags cannot be read."""


async def kill_job(
    followed: Followed,
    *,
    follower: str | None = None,
    task: ObservedTask | None = None,
    limit_s: float | None = None,
) -> None:
    """Stop the job, with retries until the service accepts the stop or `limit_s` seconds have passed.

    If Airflow reports that the task is still deferred, a tag on the job decides:

    - A trigger of a later try has tagged the job: the task was cleared and has been deferred again. The job is
      stopped.
    - There is no such tag: another triggerer has taken over the trigger and follows the job. The job is not
      stopped.

    Args:
        followed: the job.
        follower: see `stop_job`.
        task: the job's task; None to stop the job without a query of its state.
        limit_s: seconds for all tries, by default `KILL_LIMIT_S`.

    Raises:
        ClientError: the service rejected the last try, or has no such job.
        BotoCoreError: the service did not answer the last try.
        OSError: the last try had no connection, or took too long (TimeoutError).
    """
    deadline = time.monotonic() + (KILL_LIMIT_S if limit_s is None else limit_s)
    is_deferred = task is not None and await task.is_deferred(STATE_LIMIT_S)
    if is_deferred and not await _is_followed_by_a_later_try(followed, follower, deadline):
        log.info(
            "Job %s is not stopped: its task is deferred, and another triggerer follows it",
            followed.job_name,
        )
        return
    failures = 0
    while True:
        try:
            async with asyncio.timeout(min(_ONE_TRY_S, max(0.1, deadline - time.monotonic()))):
                await stop_job(followed, follower=follower)
                return
        except (ClientError, BotoCoreError, OSError) as error:
            failures += 1
            delay = backoff_s(failures, longest_s=_LONGEST_PAUSE_S)
            is_unknown = isinstance(error, ClientError) and is_unknown_job(*code_and_message(error))
            if is_unknown or time.monotonic() + delay >= deadline:
                log.error("Job %s was not stopped: stop it by hand", followed.job_name)  # noqa: TRY400  # raised
                raise
            log.warning(
                "Job %s is not stopped yet (%r); retry in %.0f s",
                followed.job_name,
                error,
                delay,
            )
        await asyncio.sleep(delay)


async def stop_job(
    followed: Followed, *, tag: Mapping[str, str] = KILLED_TAG, follower: str | None = None
) -> None:
    """Request the stop of the job once, if its status is `InProgress`.

    The job is first tagged with the reason. A cleared task may start again while its old job still runs, and must
    distinguish this stop from a stop by a person.

    Args:
        followed: the job.
        tag: the reason, as a tag.
        follower: identity of the trigger that stops the job; the job is not stopped if another triggerer has taken over
            the trigger. None for a caller that is not a trigger.

    Raises:
        ClientError: the service rejected a call, or has no such job.
    """
    api = JOB_APIS[followed.kind]
    named = api.named(followed.job_name)
    async with shared_clients(followed.connection, "sagemaker") as clients:
        client = clients["sagemaker"]
        answer = await getattr(client, api.describe)(**named)
        status = answer[api.status_key]
        if status != JobStatus.IN_PROGRESS:
            log.info("Job %s needs no stop: it is %s", followed.job_name, status)
            return
        arn = answer[api.arn_key]
        if await _is_taken_over(client, arn, follower):
            log.info("Job %s is not stopped: another triggerer follows it now", followed.job_name)
            return
        try:
            await client.add_tags(ResourceArn=arn, Tags=[dict(tag)])
        except ClientError as error:
            log.warning(
                "The tag with the reason for the stop of job %s was not written: %s",
                followed.job_name,
                error,
            )
        await getattr(client, api.stop)(**named)


async def note_follower(client: Any, arn: str, follower: str | None) -> None:
    """Tag the job with the trigger that follows it; log a warning if the service rejects the tag."""
    if follower is None:
        return
    try:
        await client.add_tags(ResourceArn=arn, Tags=[{"Key": FOLLOWER_KEY, "Value": follower}])
    except ClientError as error:
        log.warning("The tag with the triggerer that follows %s was not written: %s", arn, error)


async def _is_followed_by_a_later_try(
    followed: Followed, follower: str | None, deadline: float
) -> bool:
    """Return whether a trigger of a later try of the task tags the job within `NOTE_LIMIT_S` seconds.

    The result is False at once if another triggerer has tagged the job for the same deferral. Until the tags
    have been read once, the wait may exceed `NOTE_LIMIT_S`, because the job may already have a tag of a later
    try. It then ends at `deadline`, a time of `time.monotonic`.
    """
    api = JOB_APIS[followed.kind]
    end_of_wait = time.monotonic() + NOTE_LIMIT_S
    is_read = False
    while time.monotonic() < (end_of_wait if is_read else deadline):
        try:
            async with (
                asyncio.timeout(min(_ONE_TRY_S, max(0.1, deadline - time.monotonic()))),
                shared_clients(followed.connection, "sagemaker") as clients,
            ):
                client = clients["sagemaker"]
                describe = getattr(client, api.describe)
                arn = (await describe(**api.named(followed.job_name)))[api.arn_key]
                tags = (await client.list_tags(ResourceArn=arn))["Tags"]
        except (ClientError, BotoCoreError, OSError) as error:
            log.warning(
                "It is not known which triggerer follows job %s (%r)", followed.job_name, error
            )
        else:
            is_read = True
            if is_taken_over(tags, from_follower=follower):
                return False
            if is_of_later_try(tags, from_follower=follower):
                return True
        await asyncio.sleep(_LOOK_S)
    return False


async def _is_taken_over(client: Any, arn: str, follower: str | None) -> bool:
    if follower is None:
        return False
    try:
        answer = await client.list_tags(ResourceArn=arn)
    except ClientError as error:
        log.warning("It is not known whether another triggerer follows %s: %s", arn, error)
        return False
    return is_taken_over(answer["Tags"], from_follower=follower)
