"""Reading a job's log streams asks the account's scarce operations seldom."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.triggers.log_tail import LogTail, NewestSteps, newest_steps

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


def test_the_newest_steps_of_a_job_are_those_of_its_last_lines(
    aws_connection: Any, task: Any
) -> None:
    logs = AwsClients(ConnectionArguments()).client("logs")
    group = f"/test/{task.run_id}"
    logs.create_log_group(logGroupName=group)
    now_ms = int(time.time() * 1000)
    streams = {
        "job/algo-1-1": [
            "trainyard start step=0",
            "trainyard step=7 loss=2",
            "a line",
            "durable step=9",
        ],
        "job/algo-1-2": [
            "trainyard start step=4",
            "trainyard durable step=4",
            "trainyard step=5 loss=2",
        ],
        "job-2/algo-1-1": ["trainyard step=99 loss=2"],
    }
    for index, (stream, lines) in enumerate(streams.items()):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        events = [
            {"timestamp": now_ms + 1000 * index + place, "message": line}
            for place, line in enumerate(lines)
        ]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)

    async def newest(job_name: str) -> NewestSteps:
        async with await AwsClients(ConnectionArguments()).async_client("logs") as client:
            return await newest_steps(client, group=group, job_name=job_name)

    assert asyncio.run(newest("job")) == NewestSteps(trained=5, durable=4)
    assert asyncio.run(newest("job-3")) == NewestSteps()
