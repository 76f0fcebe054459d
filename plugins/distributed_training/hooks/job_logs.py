"""The end of a job's log, host by host, for saying why it failed. Never a reason to fail itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

MOST_HOSTS = 16
MOST_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLog:
    """The last lines of one host, and when it printed the last of them (epoch milliseconds)."""

    host: str
    lines: tuple[str, ...]
    ended_at_ms: int


def last_lines(logs: Any, *, group: str, job_name: str) -> list[HostLog]:
    """Return the ends of the hosts' logs, the host that fell silent first before the others.

    A host that was interrupted and started again has several streams: the newest counts. What the
    service does not tell (no permission, throttled, away) is missing, with a warning.

    Args:
        logs: a boto3 client of CloudWatch Logs.
        group: the log group.
        job_name: the job.
    """
    newest: dict[str, HostLog] = {}
    try:
        for each in _ends(logs, group=group, job_name=job_name):
            known = newest.get(each.host)
            if known is None or known.ended_at_ms < each.ended_at_ms:
                newest[each.host] = each
    except (ClientError, BotoCoreError) as error:
        log.warning("The log of job %s cannot be read whole: %s", job_name, error)
    return sorted(newest.values(), key=lambda each: each.ended_at_ms)


def host_of(stream: str, *, job_name: str) -> str:
    """Return `algo-1` of the stream `<job>/algo-1-1700000000`."""
    name = stream.removeprefix(f"{job_name}/")
    host, _, epoch = name.rpartition("-")
    return host if epoch.isdigit() and host.rpartition("-")[2].isdigit() else name


def _ends(logs: Any, *, group: str, job_name: str) -> Iterator[HostLog]:
    found = logs.describe_log_streams(
        logGroupName=group, logStreamNamePrefix=f"{job_name}/", limit=MOST_HOSTS
    )
    for stream in found["logStreams"]:
        name = stream["logStreamName"]
        page = logs.get_log_events(
            logGroupName=group, logStreamName=name, limit=MOST_LINES, startFromHead=False
        )
        if page["events"]:
            yield HostLog(
                host=host_of(name, job_name=job_name),
                lines=tuple(str(each["message"]).rstrip("\n") for each in page["events"]),
                ended_at_ms=int(page["events"][-1]["timestamp"]),
            )
