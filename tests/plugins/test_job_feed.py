"""Many jobs are followed by one listing and one reading of the log, also by a service that throttles."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.triggers.followed import Followed
from trainyard_airflow.triggers.job import JobTrigger
from trainyard_airflow.triggers.job_feed import Subscription, subscribed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(240)

SERVICE = Path(__file__).with_name("throttling_service.py")
NUM_JOBS = 30


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service that allows five calls a second of each operation."""
    command = [sys.executable, str(SERVICE), "--rate", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        extra = {"region_name": "us-east-1", "endpoint_url": url}
        keys = {"login": "test-login", "password": "test-password"}
        connection = {"conn_type": "aws", "extra": extra, **keys}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        yield url
        process.terminate()


def asked(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the service's answer."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data) as answer:  # noqa: S310  # our own
        return dict(json.load(answer))


async def ends(num_jobs: int) -> list[dict[str, Any]]:
    """Return the event of each job's trigger."""

    async def end(number: int) -> dict[str, Any]:
        followed = Followed(
            kind=JobKind.TRAINING,
            job_name=f"job-{number}",
            connection=ConnectionArguments(),
            has_secrets=False,
        )
        (event,) = [each.payload async for each in JobTrigger(**followed.to_dict()).run()]
        return dict(event)

    return list(await asyncio.gather(*[end(each) for each in range(num_jobs)]))


def test_jobs_are_followed_to_their_end_without_a_call_for_each(
    service: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked(f"{service}/start", {"num_jobs": NUM_JOBS, "run_s": 6, "spread_s": 2})

    with caplog.at_level(logging.INFO):
        events = asyncio.run(ends(NUM_JOBS))

    calls = asked(f"{service}/calls")
    assert {each["job"]["status"] for each in events} == {"Completed"}
    assert set(calls) <= {"ListTrainingJobs", "FilterLogEvents", "throttled"}
    lines = [each for each in caplog.messages if each.startswith("[algo-1] trainyard step=")]
    assert len(lines) == sum(int(6 + 2 * n / NUM_JOBS) for n in range(NUM_JOBS))


def line(at_ms: int, event_id: str = "a") -> dict[str, Any]:
    """Return a line of a job's log."""
    name = "job/algo-1-1"
    return {"logStreamName": name, "timestamp": at_ms, "message": "text", "eventId": event_id}


def subscription(**members: Any) -> Subscription:
    """Return the subscription of a job whose log is read from 1,000 s on."""
    return Subscription(job_name="job", reads_logs=True, since_ms=1_000_000, **members)


@pytest.mark.usefixtures("service")
def test_the_last_subscription_leaves_no_task_behind() -> None:
    async def tasks_left(*, open_s: float) -> int:
        async with subscribed(ConnectionArguments(), JobKind.TRAINING, subscription()):
            await asyncio.sleep(open_s)
        return len(asyncio.all_tasks()) - 1

    for open_s in (0.0, 0.05, 0.5):  # before, while and after the clients open
        assert asyncio.run(tasks_left(open_s=open_s)) == 0


def test_a_line_is_taken_once_and_none_from_before() -> None:
    async def taken() -> list[str]:
        job = subscription()
        for event in (line(999_999), line(1_000_000), line(1_000_000), line(1_000_001, "b")):
            job.take_line(event)
        return list(job.lines)

    assert asyncio.run(taken()) == ["[algo-1] text"] * 2


def test_a_job_that_prints_too_much_leaves_lines_out_and_counts_them() -> None:
    async def left_out() -> tuple[int, int]:
        job = subscription()
        for number in range(3_000):
            job.take_line(line(1_000_000 + number, str(number)))
        return len(job.lines), job.num_left_out

    assert asyncio.run(left_out()) == (2_000, 1_000)
