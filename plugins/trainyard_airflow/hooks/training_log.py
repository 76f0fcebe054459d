"""Reads Trainyard's lines from the CloudWatch log of a training job, including its restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.runs.continuity import LogLine
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.training_line import PREFIX, without_rank
from trainyard_airflow.hooks.refusals import code_and_message

if TYPE_CHECKING:
    from collections.abc import Iterator


def training_log(logs: Any, *, job_name: str) -> Iterator[LogLine]:
    """Yield the `trainyard ` lines of all streams of a training job, read page by page.

    Each host has one stream per start. A job that never started has no stream.

    Raises:
        ClientError: the service rejected a call (no permission, or throttled in all retries).
        BotoCoreError: the service cannot be reached.

    Args:
        logs: a boto3 client of CloudWatch Logs.
        job_name: the training job.
    """
    group = JOB_APIS[JobKind.TRAINING].log_group
    for stream in log_streams(logs, group=group, prefix=f"{job_name}/"):
        pages = log_pages(logs, group=group, stream=stream)
        for event in (each for events, _ in pages for each in events):
            text = without_rank(str(event["message"]).rstrip("\r\n"))
            if text.startswith(PREFIX):
                yield LogLine(
                    job=job_name, stream=stream, time_ms=int(event["timestamp"]), text=text
                )


def log_streams(logs: Any, *, group: str, prefix: str) -> Iterator[str]:
    """Yield the names of the streams that begin with a prefix; none if no job has logged yet.

    Raises:
        ClientError: the service rejected a call.
    """
    from botocore.exceptions import ClientError

    pages = logs.get_paginator("describe_log_streams").paginate(
        logGroupName=group, logStreamNamePrefix=prefix
    )
    try:
        for page in pages:
            for stream in page["logStreams"]:
                yield stream["logStreamName"]
    except ClientError as error:
        if code_and_message(error)[0] != "ResourceNotFoundException":  # no job has logged yet
            raise


def log_pages(
    logs: Any, *, group: str, stream: str, token: str | None = None
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yield the events of a stream page by page, each with the token of the next page.

    Reading begins at the head or at `token`, and ends when the service returns the same token again.

    Raises:
        ClientError: the service rejected a call.
    """
    where: dict[str, Any] = {
        "logGroupName": group,
        "logStreamName": stream,
        "startFromHead": True,
    }
    while True:
        page = logs.get_log_events(**where, **({"nextToken": token} if token else {}))
        yield page["events"], page["nextForwardToken"]
        if page["nextForwardToken"] == token:
            return
        token = page["nextForwardToken"]
