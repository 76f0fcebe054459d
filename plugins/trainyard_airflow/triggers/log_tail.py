"""Reader of a job's log lines in CloudWatch Logs, for all hosts: each line once, in order per host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.training_line import TrainingLine, is_heartbeat, without_rank
from trainyard_airflow.hooks.job_logs import host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
_PAGES_PER_LOOK = 50
_MOST_LOOKS_WITHOUT = 32
_LAST_LINES = 1_000


@dataclass(slots=True, kw_only=True)
class LogTail:
    """Reader of one job's log streams, with its position in each stream.

    Each call of `new_lines` that requests a listing lists the streams. While fewer than `num_streams` streams
    are known, the calls without a request are counted; each request sets the count back to 0. Of the counted
    calls, the 1st, 2nd, 4th, 8th, 16th and 32nd list the streams, too, and after that every 32nd. The others do
    not, because the account's limit of DescribeLogStreams is a few calls per second.

    Attributes:
        group: the log group.
        job_name: streams are named `<job_name>/<host>...`.
        num_streams: the expected number of streams.
        heartbeat_at: time of the training's newest heartbeat, epoch seconds; None before the first.
        is_behind: whether the last read left lines unread.
    """

    group: str
    job_name: str
    num_streams: int = 1
    tokens: dict[str, str | None] = field(default_factory=dict)
    heartbeat_at: float | None = None
    is_behind: bool = False
    _looks_without: int = 0

    async def new_lines(self, logs: Any, *, look_for_streams: bool = True) -> AsyncIterator[str]:
        """Yield the new lines since the last call, each prefixed with its host in brackets.

        Args:
            logs: an aiobotocore client of CloudWatch Logs.
            look_for_streams: whether to list the streams even if every host has one; a restarted host creates another.

        Raises:
            ClientError: the service rejected a call.
        """
        if look_for_streams or self._searches_again():
            await self.find_streams(logs)
        if look_for_streams:
            self._looks_without = 0
        self.is_behind = False
        for stream in sorted(self.tokens):
            host = host_of(stream, job_name=self.job_name)
            async for message in self._stream_lines(logs, stream):
                yield f"[{host}] {message}"

    def _searches_again(self) -> bool:
        """Return whether this read lists the streams even without a request, to find missing ones.

        While streams are missing, each read without a request is counted; the count decides (see `LogTail`).
        """
        if len(self.tokens) >= self.num_streams:
            return False
        self._looks_without += 1
        looks = self._looks_without
        return (
            looks & (looks - 1) == 0
            if looks < _MOST_LOOKS_WITHOUT
            else looks % _MOST_LOOKS_WITHOUT == 0
        )

    async def find_streams(self, logs: Any) -> None:
        """Find the job's streams and add them to `tokens`, which holds the next read position of each stream.

        If the log group does not exist, nothing is added.

        Raises:
            ClientError: the service rejected the listing.
        """
        pages = logs.get_paginator("describe_log_streams").paginate(
            logGroupName=self.group, logStreamNamePrefix=f"{self.job_name}/"
        )
        try:
            async for page in pages:
                for stream in page["logStreams"]:
                    self.tokens.setdefault(stream["logStreamName"], None)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise

    async def _stream_lines(self, logs: Any, stream: str) -> AsyncIterator[str]:
        for _ in range(_PAGES_PER_LOOK):
            token = self.tokens[stream]
            where = {"logGroupName": self.group, "logStreamName": stream, "startFromHead": True}
            page = await logs.get_log_events(**where, **({"nextToken": token} if token else {}))
            for event in page["events"]:
                if is_heartbeat(event["message"]):
                    self.heartbeat_at = max(self.heartbeat_at or 0.0, event["timestamp"] / 1000)
                yield event["message"]
            self.tokens[stream] = page["nextForwardToken"]
            if page["nextForwardToken"] == token:
                return
        self.is_behind = True


async def newest_heartbeat(logs: Any, *, group: str, job_name: str) -> float | None:
    """Return the time of the job's newest heartbeat in epoch seconds, or None if no heartbeat is found.

    Only the last 1,000 lines of each log stream are read.

    Args:
        logs: an aiobotocore client of CloudWatch Logs.
        group: the log group.
        job_name: streams are named `<job_name>/<host>...`.

    Raises:
        ClientError: the service rejected a call.
    """
    times_ms = [
        int(each["timestamp"])
        async for each in _last_events(logs, group=group, job_name=job_name)
        if is_heartbeat(each["message"])
    ]
    return max(times_ms) / 1000 if times_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSteps:
    """Newest steps in a training's log; a member is None if the log has no such step.

    Attributes:
        trained: the newest completed step.
        durable: step of the newest checkpoint that is stored completely.
    """

    trained: int | None = None
    durable: int | None = None


async def newest_steps(logs: Any, *, group: str, job_name: str) -> NewestSteps:
    """Return the newest steps in the last 1,000 lines of each stream; the arguments are those of `newest_heartbeat`.

    Raises:
        ClientError: the service rejected a call.
    """
    newest: dict[str, tuple[int, int]] = {}
    async for each in _last_events(logs, group=group, job_name=job_name):
        line = TrainingLine.parse(without_rank(each["message"]))
        if line is not None and line.step is not None:
            at_ms = int(each["timestamp"])
            newest[line.kind] = max(newest.get(line.kind, (0, 0)), (at_ms, line.step))
    return NewestSteps(
        trained=newest["step"][1] if "step" in newest else None,
        durable=newest["durable"][1] if "durable" in newest else None,
    )


async def _last_events(logs: Any, *, group: str, job_name: str) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the last 1,000 lines of each of a job's streams, in order per stream."""
    tail = LogTail(group=group, job_name=job_name)
    await tail.find_streams(logs)
    for stream in tail.tokens:
        page = await logs.get_log_events(
            logGroupName=group, logStreamName=stream, startFromHead=False, limit=_LAST_LINES
        )
        for each in page["events"]:
            yield each
