"""Follows one job to its end: describes it, passes its log lines on, outlives an endpoint that is away."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from distributed_training.hooks.aws_clients import AwsClients, ConnectionArguments
from distributed_training.hooks.job_kinds import JOB_APIS, KILLED_TAG, JobKind
from distributed_training.hooks.refusals import code_and_message, typed
from distributed_training.triggers.log_tail import LogTail
from distributed_training.triggers.pace import Pace, backoff_s
from include.errors import ContractError, RejectedRequestError
from include.sagemaker_api.failures import is_unknown_job
from include.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

_REFUSALS_IN_A_ROW = 5
_TRANSIENT = (BotoCoreError, HTTPClientError, OSError, asyncio.TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What to follow, and how closely. JSON-safe through `to_dict`.

    Attributes:
        poll_interval_s: the longest time between two looks.
        stream_logs: whether the log lines of all hosts are passed on.
    """

    kind: JobKind
    job_name: str
    connection: ConnectionArguments
    poll_interval_s: float = 15.0
    stream_logs: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return {
            "kind": str(self.kind),
            "job_name": self.job_name,
            "poll_interval_s": self.poll_interval_s,
            "stream_logs": self.stream_logs,
            **self.connection.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return what `to_dict` wrote."""
        own = {"kind", "job_name", "poll_interval_s", "stream_logs"}
        connection = {key: value for key, value in data.items() if key not in own}
        return cls(
            kind=JobKind(data["kind"]),
            job_name=data["job_name"],
            poll_interval_s=data["poll_interval_s"],
            stream_logs=data["stream_logs"],
            connection=ConnectionArguments(**connection),
        )


async def follow_job(followed: Followed) -> JobSnapshot:
    """Return the job's final snapshot, however long that takes; its log lines go to this module's logger.

    A service that does not answer, throttles or fails is asked again with growing waits, for ever:
    the job runs on meanwhile, and whoever waits for it decides how long to wait.

    Raises:
        TrainingRunError: the service refuses to describe the job (no permission, no such job),
            several times.
    """
    look = _Look(followed)
    try:
        return await _follow(followed, look)
    finally:
        await look.close()


async def _follow(followed: Followed, look: _Look) -> JobSnapshot:
    pace = Pace(longest_s=followed.poll_interval_s)
    refusals = failures = 0
    while True:
        try:
            async with look:
                snapshot = await look.now()
                failures = refusals = 0
                if snapshot.is_terminal:
                    await look.drain_logs()
                    return snapshot
        except ClientError as error:
            refusals += _is_refusal(error)
            failures += 1
            if refusals >= _REFUSALS_IN_A_ROW:
                ours = typed(error, where=f"job {followed.job_name}")
                raise ours from error
            delay = _after(error, failures)
        except _TRANSIENT as error:
            failures += 1
            delay = _after(error, failures)
        else:
            age_s = time.time() - (snapshot.created_at or time.time())
            delay = pace.delay_s(age_s=age_s, phase=snapshot.secondary_status or snapshot.status)
        await asyncio.sleep(delay)


async def stop_job(followed: Followed) -> None:
    """Ask the service to stop the job of a killed task; a job that has ended already is left alone.

    The job is tagged first: a cleared task may start again while its old job still runs, and must be able to
    tell this stop from one that a person asked for.

    Raises:
        ClientError: the service refused although the job runs, or knows no such job.
    """
    api = JOB_APIS[followed.kind]
    named = {api.name_key: followed.job_name}
    async with await AwsClients(followed.connection).async_client("sagemaker") as client:
        answer = await getattr(client, f"describe_{api.method}")(**named)
        status = answer[f"{api.noun}Status"]
        if status != "InProgress":
            log.info("Job %s needs no stop: it is %s", followed.job_name, status)
            return
        try:
            await client.add_tags(ResourceArn=answer[f"{api.noun}Arn"], Tags=[KILLED_TAG])
        except ClientError as error:
            log.warning("Job %s is stopped without a mark why: %s", followed.job_name, error)
        await getattr(client, f"stop_{api.method}")(**named)


def _is_refusal(error: ClientError) -> bool:
    """Return whether asking again will not help: refused, but not for load or a fault of the service."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    refused = typed(error, where="")
    return isinstance(refused, RejectedRequestError) and status < 500


def _after(error: Exception, failures: int) -> float:
    delay = backoff_s(failures)
    log.warning("No answer from the service (%s); asking again in %.0f s", error, delay)
    return delay


@dataclass(slots=True)
class _Look:
    """Open clients and reading positions of one followed job; clients are renewed after a failure."""

    followed: Followed
    clients: AwsClients = field(init=False)
    tail: LogTail = field(init=False)
    phase: str | None = None
    open: AsyncExitStack | None = None
    sagemaker: Any = None
    logs: Any = None

    def __post_init__(self) -> None:
        self.clients = AwsClients(self.followed.connection)
        group = JOB_APIS[self.followed.kind].log_group
        self.tail = LogTail(group=group, job_name=self.followed.job_name)

    async def __aenter__(self) -> Self:
        """Open the clients unless they are open."""
        if self.open is None:
            async with AsyncExitStack() as stack:
                enter = stack.enter_async_context
                self.sagemaker = await enter(await self.clients.async_client("sagemaker"))
                if self.followed.stream_logs:
                    self.logs = await enter(await self.clients.async_client("logs"))
                self.open = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the clients when the look failed; the next one reads the connection anew and opens others."""
        if kind is not None:
            await self.close()
            self.clients = AwsClients(self.followed.connection)

    async def close(self) -> None:
        """Close the clients."""
        if self.open is not None:
            closing, self.open = self.open, None
            await closing.aclose()

    async def now(self) -> JobSnapshot:
        """Return the job as it is; log a change of state and the new lines."""
        snapshot = await self._describe()
        phase = snapshot.secondary_status or snapshot.status
        changed = phase != self.phase
        if changed:
            log.info("Job %s: %s %s", snapshot.name, phase, snapshot.status_message or "")
            self.phase = phase
        if self.logs is not None:
            self.tail.num_hosts = snapshot.instance_count
            await self._pass_logs_on(look_for_streams=changed)
        return snapshot

    async def drain_logs(self) -> None:
        """Pass on what is left of the logs."""
        if self.logs is not None:
            while await self._pass_logs_on(look_for_streams=True):
                pass

    async def _describe(self) -> JobSnapshot:
        api = JOB_APIS[self.followed.kind]
        describe = getattr(self.sagemaker, f"describe_{api.method}")
        try:
            answer = await describe(**{api.name_key: self.followed.job_name})
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                log.warning("The service knows no job %s (yet)", self.followed.job_name)
            raise
        if not answer.get(f"{api.noun}Status"):
            raise ContractError("the service described a job without a status", got=list(answer))
        return JobSnapshot.from_describe(answer)

    async def _pass_logs_on(self, *, look_for_streams: bool) -> int:
        """Log the new lines of all hosts and return how many there were."""
        count = 0
        async for line in self.tail.new_lines(self.logs, look_for_streams=look_for_streams):
            log.info("%s", line)
            count += 1
        return count
