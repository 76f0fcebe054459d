"""Many jobs are followed by one listing and one reading of the log, also by a service that throttles."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.triggers.follow import FedLook
from trainyard_airflow.triggers.followed import Followed
from trainyard_airflow.triggers.job import JobTrigger
from trainyard_airflow.triggers.job_feed import FeedState, JobFeed, Subscription, subscribed
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = Path(__file__).with_name("throttling_service.py")
NUM_JOBS = 30
DAY_S = 86_400.0


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


def followed_job(number: int = 0, **members: Any) -> Followed:
    """Return a job of the service."""
    return Followed(
        kind=JobKind.TRAINING,
        job_name=f"job-{number}",
        connection=ConnectionArguments(),
        has_secrets=False,
        **members,
    )


async def end(followed: Followed, **arguments: Any) -> dict[str, Any]:
    """Return the event of a job's trigger within a minute."""
    async with asyncio.timeout(60):
        trigger = JobTrigger(**followed.to_dict(), **arguments)
        (event,) = [each.payload async for each in trigger.run()]
    return dict(event)


async def ends(num_jobs: int) -> list[dict[str, Any]]:
    """Return the event of each job's trigger."""
    return list(await asyncio.gather(*[end(followed_job(each)) for each in range(num_jobs)]))


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


def test_other_jobs_of_the_account_cost_no_calls(service: str) -> None:
    jobs = {"num_jobs": 3, "run_s": 4, "spread_s": 1, "num_others": 5000}
    asked(f"{service}/start", jobs)

    events = asyncio.run(ends(3))

    calls = asked(f"{service}/calls")
    assert {each["job"]["status"] for each in events} == {"Completed"}
    assert "DescribeTrainingJob" not in calls
    assert calls["ListTrainingJobs"] < 20  # all jobs of the account are 51 pages


@pytest.mark.parametrize(
    "deferred_before_s", [0.0, DAY_S], ids=["attached just now", "followed from its creation"]
)
def test_a_job_behind_thousands_of_newer_jobs_is_described(
    service: str, deferred_before_s: float
) -> None:
    jobs = {"num_jobs": 1, "run_s": 6, "spread_s": 0, "num_others": 5000}
    asked(f"{service}/start", {**jobs, "age_s": DAY_S + 1})

    followed = followed_job(poll_interval_s=2.0)
    event = asyncio.run(end(followed, deferred_at=time.time() - deferred_before_s))

    calls = asked(f"{service}/calls")
    assert event["job"]["status"] == "Completed"
    assert calls["DescribeTrainingJob"] <= 3
    assert calls["ListTrainingJobs"] < 40


def test_a_new_job_is_described_while_no_listing_is_answered(service: str) -> None:
    faults = {"ListTrainingJobs": ["ThrottlingException", 10**6]}
    jobs = {"num_jobs": 1, "run_s": 1, "spread_s": 0, "faults": faults}
    asked(f"{service}/start", jobs)

    assert asyncio.run(end(followed_job()))["job"]["status"] == "Completed"


@pytest.mark.parametrize(
    "patience",
    [
        pytest.param(lambda: Patience(plan_stops=(time.time() - 1,)), id="end of a plan's window"),
        pytest.param(lambda: Patience(heartbeat_timeout_s=8), id="no heartbeats"),
    ],
)
def test_a_stop_that_the_service_rejects_is_requested_again(service: str, patience: Any) -> None:
    faults = {"StopTrainingJob": ["AccessDeniedException", 1]}
    jobs = {"num_jobs": 1, "run_s": 15, "spread_s": 0, "age_s": 100, "lines_s": 80}
    asked(f"{service}/start", {**jobs, "faults": faults})

    event = asyncio.run(end(followed_job(patience=patience())))

    assert event["job"]["status"] == "Stopped"
    assert asked(f"{service}/calls")["StopTrainingJob"] == 2


def fed_look(patience: Patience, heartbeat_at: float) -> FedLook:
    """Return the follower of a job whose last heartbeat in the feed was at `heartbeat_at`."""
    look = FedLook(followed_job(patience=patience))
    look.listens_since = heartbeat_at
    look.feed = JobFeed(ConnectionArguments(), JobKind.TRAINING)
    look.subscription = Subscription(
        job_name="job-0", reads_logs=True, since_ms=0, heartbeat_at=heartbeat_at
    )
    return look


def test_the_log_of_an_unlisted_job_is_read_before_the_job_counts_as_hung(service: str) -> None:
    asked(f"{service}/start", {"num_jobs": 1, "run_s": 60, "spread_s": 0, "age_s": 1000})

    async def polled() -> None:
        look = fed_look(Patience(heartbeat_timeout_s=300), time.time() - 900)
        try:
            assert await look._take(FeedState(is_listed=False)) is None
        finally:
            await look.clients.close()

    asyncio.run(polled())

    calls = asked(f"{service}/calls")
    assert "GetLogEvents" in calls
    assert "StopTrainingJob" not in calls


def test_a_job_whose_log_cannot_be_read_any_longer_is_not_stopped_as_hung(service: str) -> None:
    running = JobSnapshot(
        kind="training",
        name="job-0",
        arn="arn",
        status="InProgress",
        secondary_status="Training",
    )

    async def polled() -> None:
        look = fed_look(Patience(heartbeat_timeout_s=300), 1.0)
        look.is_deaf, look.now_s = True, time.time()
        await look.give_up_on(running)

    asyncio.run(polled())

    assert asked(f"{service}/calls") == {}


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
