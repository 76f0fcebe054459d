"""Last log lines of each host of a job, as evidence of the job's failure. Reading them never raises."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

MOST_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLog:
    """Last lines of one host, and the time of the last one (epoch milliseconds)."""

    host: str
    lines: tuple[str, ...]
    ended_at_ms: int


def last_lines(logs: Any, *, group: str, job_name: str) -> list[HostLog]:
    """Return the last log lines of the hosts, ordered by the time of their last line.

    A host that was interrupted and restarted has several streams, of which only the newest is read. If the service
    rejects a read (no permission, throttled, unavailable), the lines are missing and a warning is logged.

    Args:
        logs: a boto3 client of CloudWatch Logs.
        group: the log group.
        job_name: the job.
    """
    ends: list[HostLog] = []
    try:
        ends.extend(_ends(logs, group=group, job_name=job_name))
    except (ClientError, BotoCoreError) as error:
        log.warning("The log of job %s cannot be read completely: %s", job_name, error)
    return sorted(ends, key=lambda each: each.ended_at_ms)


def host_of(stream: str, *, job_name: str) -> str:
    """Return the host of a log stream: `algo-1` for `<job>/algo-1-1700000000`."""
    name = stream.removeprefix(f"{job_name}/")
    host, _, epoch = name.rpartition("-")
    return host if epoch.isdigit() and host.rpartition("-")[2].isdigit() else name


def _ends(logs: Any, *, group: str, job_name: str) -> Iterator[HostLog]:
    for host, name in _newest_streams(logs, group=group, job_name=job_name).items():
        page = logs.get_log_events(
            logGroupName=group, logStreamName=name, limit=MOST_LINES, startFromHead=False
        )
        if page["events"]:
            yield HostLog(
                host=host,
                lines=tuple(str(each["message"]).rstrip("\n") for each in page["events"]),
                ended_at_ms=int(page["events"][-1]["timestamp"]),
            )


def _newest_streams(logs: Any, *, group: str, job_name: str) -> dict[str, str]:
    """Return the newest stream of each host, by host; each start of a host creates a stream."""
    pages = logs.get_paginator("describe_log_streams").paginate(
        logGroupName=group, logStreamNamePrefix=f"{job_name}/"
    )
    streams = [each for page in pages for each in page["logStreams"]]
    streams.sort(key=lambda each: (each.get("creationTime", 0), _epoch(each["logStreamName"])))
    return {
        host_of(each["logStreamName"], job_name=job_name): each["logStreamName"] for each in streams
    }


def _epoch(stream: str) -> int:
    """Return the epoch seconds at the end of `<job>/algo-1-1700000000`; 0 if there are none."""
    last = stream.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
