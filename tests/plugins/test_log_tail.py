"""Reading a job's log streams asks the account's scarce operations seldom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.triggers.log_tail import LogTail

pytestmark = pytest.mark.engine


async def listings(tail: LogTail, *, looks: int) -> list[int]:
    """Return in which looks the streams were listed; the first is one that asks for it."""
    asked: list[int] = []
    async with await AwsClients(ConnectionArguments()).async_client("logs") as logs:
        current = 0
        logs.meta.events.register(
            "before-call.cloudwatch-logs.DescribeLogStreams",
            lambda **_: asked.append(current),
        )
        for current in range(looks):
            async for _ in tail.new_lines(logs, look_for_streams=current == 0):
                pass
    return asked


def test_a_host_that_never_opens_a_stream_is_looked_for_ever_more_seldom(
    aws_connection: Any,
) -> None:
    tail = LogTail(group="/aws/sagemaker/TrainingJobs", job_name="no-such-job", num_streams=2)

    assert asyncio.run(listings(tail, looks=100)) == [0, 1, 2, 4, 8, 16, 32, 64, 96]


def test_streams_are_listed_once_where_every_host_has_one(aws_connection: Any) -> None:
    tail = LogTail(group="/aws/sagemaker/TrainingJobs", job_name="no-such-job", num_streams=0)

    assert asyncio.run(listings(tail, looks=5)) == [0]
