"""Jobs and log of a run, as its page reads them from the engine."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fastapi import HTTPException

from trainyard.errors import SpecError
from trainyard.runs.live.facts import RunRow
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.operators.sagemaker_job import JOB_CONNECTION_XCOM_KEY, JOB_XCOM_KEY
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.pages import training_feed
from trainyard_airflow.pages.app import report_file
from trainyard_airflow.pages.training_feed import (
    Clients,
    Feeds,
    LogReader,
    TrainingFeed,
    _KnownJob,
)
from trainyard_airflow.tasks.shared.closing_report import ClosingReportOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugins.conftest import TaskSurroundings

pytestmark = pytest.mark.engine

HOUR_S = 3600.0
LINES = """
print("trainyard start step=0 world_size=1 max_steps=2")
print("trainyard step=1 loss=2.0")
print("trainyard step=2 loss=1.0")
"""


@contextmanager
def calls(clients: Clients, run: RunRow, service: str) -> Iterator[list[str]]:
    """Yield the operations of a service that are asked for meanwhile."""
    asked: list[str] = []
    client = clients.of(run, "train").client(service)
    client.meta.events.register("before-call", lambda model, **_: asked.append(model.name))
    yield asked


def row(task: TaskSurroundings, **values: Any) -> RunRow:
    members: dict[str, Any] = {
        "dag_id": task.dag_id,
        "run_id": task.run_id,
        "state": "running",
        "run_type": "manual",
        "queued_at": None,
        "start": time.time(),
        "end": None,
        "note": None,
        "jobs": {"train": "another-job"},
    }
    return RunRow(**{**members, **values})


@pytest.fixture
def clients(aws_connection: Any) -> Clients:
    return Clients()


def read_log(feed: TrainingFeed, logs: Any, *names: str, now: float) -> None:
    """Let a feed read the log of a training with these jobs; all but the last one ended long ago."""
    feed._known = {each: _KnownJob(snapshot={}, secrets=()) for each in names}
    jobs = [
        {"name": each, "started_at": 1.0, "ended_at": None if each == names[-1] else 2.0}
        for each in names
    ]
    feed._read_log(jobs, logs, now=now)


@dataclass
class Logs:
    """CloudWatch Logs with some streams; a page holds two lines."""

    streams: dict[str, list[str]] = field(default_factory=dict)
    listings: int = 0
    num_pages: int = 0

    def get_paginator(self, _: str) -> Logs:
        return self

    def paginate(self, *, logStreamNamePrefix: str, **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        self.listings += 1
        names = [each for each in self.streams if each.startswith(logStreamNamePrefix)]
        for each in reversed(names):
            yield {"logStreams": [{"logStreamName": each}]}

    def get_log_events(
        self,
        *,
        logStreamName: str,  # noqa: N803
        nextToken: str = "0",  # noqa: N803
        **_: Any,
    ) -> dict[str, Any]:
        self.num_pages += 1
        lines = self.streams[logStreamName][int(nextToken) : int(nextToken) + 2]
        return {
            "events": [{"timestamp": 1, "message": f"{each}\n"} for each in lines],
            "nextForwardToken": str(int(nextToken) + len(lines)),
        }


@dataclass
class LogsWithGap(Logs):
    """CloudWatch Logs that answer one call within a stream with an empty page and a new token."""

    gap: tuple[str, str] = ("", "")

    def get_log_events(self, *, nextToken: str = "0", **more: Any) -> dict[str, Any]:  # noqa: N803
        if (more["logStreamName"], nextToken) == self.gap:
            return {"events": [], "nextForwardToken": f"{nextToken} after the gap"}
        return super().get_log_events(nextToken=nextToken.partition(" ")[0], **more)


@dataclass
class ExpiringLogs(Logs):
    """CloudWatch Logs whose tokens expire after 24 hours."""

    now: float = 0.0

    def get_log_events(self, *, nextToken: str = "0", **more: Any) -> dict[str, Any]:  # noqa: N803
        offset, _, issued = nextToken.partition(" of ")
        if issued and self.now - float(issued) > 24 * HOUR_S:
            error = {"Code": "InvalidParameterException", "Message": "The specified nextToken"}
            raise ClientError({"Error": error}, "GetLogEvents")
        page = super().get_log_events(nextToken=offset, **more)
        token = f"{page['nextForwardToken']} of {self.now}"
        return {**page, "nextForwardToken": token if page["events"] or not issued else nextToken}


def test_each_line_of_all_starts_is_read_once_and_in_order() -> None:
    logs = Logs()
    reader = LogReader("job")

    def texts(now: float, *, ended_at: float | None = None) -> list[str]:
        lines = reader.new_lines(logs, now=now, ended_at=ended_at)
        return [line.text for line in lines]

    assert texts(0.0) == []
    logs.streams = {"job/algo-1-1700000001": ["1", "2", "3"], "job/algo-2-1700000001": ["other"]}
    assert texts(11.0) == ["1", "2", "3"]
    logs.streams["job/algo-1-1700000001"].append("4")
    logs.streams["job/algo-1-1700000099"] = ["after the restart"]
    assert texts(12.0) == ["4"], "streams are listed every ten seconds"
    assert texts(13.0, ended_at=12.5) == ["after the restart"]
    logs.streams["job/algo-1-1700000099"].append("late")
    assert texts(99.0, ended_at=12.5) == ["late"]
    listed = logs.listings
    assert texts(200.0, ended_at=12.5) == []
    assert logs.listings == listed, "the log of an ended job is whole"


def test_a_long_log_is_read_in_several_pages_and_no_later_stream_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training_feed, "_MOST_PAGES", 2)
    logs = Logs(streams={"job/algo-1-1": [str(each) for each in range(7)], "job/algo-1-2": ["b"]})
    reader = LogReader("job")
    seen = [[line.text for line in reader.new_lines(logs, now=0.0)] for _ in range(3)]
    assert seen == [["0", "1", "2", "3"], ["4", "5", "6"], ["b"]]


@pytest.mark.parametrize("later", [[], ["after the restart"]], ids=["one stream", "two streams"])
def test_an_empty_page_is_not_the_end_of_a_stream(later: list[str]) -> None:
    streams = {"job/algo-1-1": ["1", "2", "3"]} | ({"job/algo-1-2": later} if later else {})
    logs = LogsWithGap(streams=streams, gap=("job/algo-1-1", "2"))
    reader = LogReader("job")

    lines = [line.text for line in reader.new_lines(logs, now=99.0, ended_at=1.0)]

    assert lines == ["1", "2", "3", *later]
    assert reader.is_whole


def test_a_poll_without_news_reads_one_page() -> None:
    logs = Logs(streams={"job/algo-1-1": ["1", "2", "3"]})
    reader = LogReader("job")
    assert len(list(reader.new_lines(logs, now=0.0))) == 3
    read_before = logs.num_pages
    assert list(reader.new_lines(logs, now=1.0)) == []
    assert logs.num_pages - read_before == 1


def test_a_job_is_not_read_before_the_rest_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training_feed, "_MOST_PAGES", 2)
    first = [f"trainyard step={step} loss=1.0" for step in range(1, 8)]
    second = ["trainyard start step=7", *(f"trainyard step={step} loss=1.0" for step in (8, 9))]
    logs = Logs(streams={"one/algo-1-1": first, "two/algo-1-1": second})
    feed = TrainingFeed()
    for now in (100.0, 101.0, 102.0):
        read_log(feed, logs, "one", "two", now=now)
    assert [each[1:3] for each in feed._events.rows()[1]] == [
        *([step, 1] for step in range(1, 8)),
        *([step, 2] for step in (8, 9)),
    ]


def test_a_log_that_was_not_read_for_a_day_is_read_again_from_its_start() -> None:
    """The fleet page keeps a feed alive without reading its log."""
    logs = ExpiringLogs(streams={"job/algo-1-1": ["trainyard step=1 loss=2.0"]})
    feed = TrainingFeed()
    read_log(feed, logs, "job", now=0.0)
    _, before = feed._events.rows()
    logs.streams["job/algo-1-1"].append("trainyard step=2 loss=1.0")
    logs.now = 25 * HOUR_S

    read_log(feed, logs, "job", now=logs.now)

    assert [each[:2] for each in before] == [[0, 1]]
    assert [each[:2] for each in feed._events.rows(after=0)[1]] == [[1, 2]]
    assert feed._events.attempt == 1


def test_a_page_has_the_jobs_and_the_curve_of_a_run(
    clients: Clients, task: TaskSurroundings, script: Any
) -> None:
    operator = TrainingJobOperator(task_id="train", spec=script(LINES), deferrable=False)
    operator.execute(task.context)
    feed = TrainingFeed()

    reading = feed.read(row(task), clients)

    assert [(job["status"], job["succeeded"]) for job in reading.jobs["train"]] == [
        ("Completed", True)
    ]
    assert reading.fault is None
    assert reading.events is not None
    assert [each[4] for each in reading.events.rows()[1]] == [{"loss": 2.0}, {"loss": 1.0}]
    with calls(clients, row(task), "sagemaker") as asked:
        feed.read(row(task), clients)
    assert asked == [], "an ended job is read once"


def test_a_job_of_a_task_with_an_id_of_its_own_is_read_and_counted(
    clients: Clients, task: TaskSurroundings, script: Any
) -> None:
    task.task_id = "my_training"
    operator = TrainingJobOperator(task_id=task.task_id, spec=script(LINES), deferrable=False)
    result = operator.execute(task.context)
    left = {
        "jobs": {task.task_id: task.xcoms[JOB_XCOM_KEY]},
        "connections": {task.task_id: task.xcoms[JOB_CONNECTION_XCOM_KEY]},
    }
    run = row(task, **left)

    assert not run.has_unread_jobs
    usd = TrainingFeed().read(run, clients).cost_usd(time.time())
    assert usd == pytest.approx(result["billable_seconds"] / 3600 * 0.115)


def test_the_log_shows_no_secret_of_the_job(
    clients: Clients, task: TaskSurroundings, script: Any
) -> None:
    spec = script(
        "import os; print('it is', os.environ['SM_HPS'])",
        hyperparameters={"db_password": "hunter22"},
    )
    operator = TrainingJobOperator(task_id="train", spec=spec, deferrable=False)
    type(operator).execute.__wrapped__(operator, task.context)
    events = TrainingFeed().read(row(task), clients).events
    assert events is not None
    texts = "\n".join(line.text for line in events.log_tail)
    assert "it is" in texts
    assert "hunter22" not in texts


def test_what_is_refused_is_said_and_hides_nothing_else(
    aws_connection: Any, task: TaskSurroundings
) -> None:
    unknown = {"aws_conn_id": "no_such_connection"}
    asked = row(
        task,
        jobs={"shard": "a", "train": "b"},
        connections={"shard": unknown, "train": {"aws_conn_id": "aws_default"}},
    )
    reading = TrainingFeed().read(asked, Clients())
    assert reading.fault is not None
    assert "no_such_connection" in reading.fault
    assert reading.jobs == {"train": []}


def test_the_cost_of_a_run_whose_jobs_are_hidden_is_not_known(
    aws_connection: Any, task: TaskSurroundings
) -> None:
    hidden = {"train": {"aws_conn_id": "no_such_connection"}}
    runs = [row(task, connections=hidden), row(task, run_id="over", state="success")]
    assert Feeds().costs(runs) == {(task.dag_id, task.run_id): None}


def test_the_report_is_read_with_the_connection_that_wrote_it(task: TaskSurroundings) -> None:
    report = ClosingReportOperator(
        task_id="report", aws_conn_id="aws_team_b", region_name="eu-west-1"
    )
    report.pre_execute(task.context)
    of_report = task.xcoms[JOB_CONNECTION_XCOM_KEY]
    of_train = {"aws_conn_id": "another_connection", "region_name": None}
    run = row(
        task,
        returned={"report": {"report_html": f"s3://b/runs/{task.dag_id}/{task.run_id}/report/r"}},
        connections={"train": of_train, "report": of_report},
    )

    with pytest.raises(HTTPException) as refused:
        report_file(run, "report.html")

    assert of_report == {"aws_conn_id": "aws_team_b", "region_name": "eu-west-1"}
    assert "'aws_team_b'" in str(refused.value.detail)


def test_a_task_without_a_connection_is_read_with_another_one_of_its_run(
    task: TaskSurroundings,
) -> None:
    run = row(task, connections={"shard": {"aws_conn_id": "aws_team_b", "region_name": None}})
    with pytest.raises(SpecError, match="aws_team_b"):
        Clients().of(run, "train")


def test_queued_runs_do_not_keep_a_running_training_from_being_read(task: TaskSurroundings) -> None:
    queued = [row(task, run_id=f"queued {n}", state="queued", jobs={}) for n in range(25)]
    running = row(task, connections={"train": {"aws_conn_id": "no_such_connection"}})
    runs = [*queued, running]

    costs = Feeds().costs(runs)
    readings = {run.run_id: reading for run, reading in Feeds().readings(runs)}

    assert {costs[each.dag_id, each.run_id] for each in queued} == {0.0}
    assert costs[running.dag_id, running.run_id] is None, "its connection does not exist"
    assert {readings[each.run_id].fault for each in queued} == {None}
    assert "no_such_connection" in str(readings[running.run_id].fault)


def test_the_cost_is_not_known_before_the_first_reading(task: TaskSurroundings) -> None:
    feed = TrainingFeed()
    with feed._lock:  # another thread reads
        reading = feed.read(row(task), Clients())
    assert reading.cost_usd(time.time()) is None
    assert "for the first time" in str(reading.fault)


def test_a_log_that_cannot_be_read_does_not_hide_the_cost(
    clients: Clients, task: TaskSurroundings, script: Any
) -> None:
    def deny(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeLogStreams")

    operator = TrainingJobOperator(task_id="train", spec=script(LINES), deferrable=False)
    operator.execute(task.context)
    clients.of(row(task), "train").client("logs").meta.events.register("before-call", deny)

    reading = TrainingFeed().read(row(task), clients)

    assert "the log: An error occurred (AccessDeniedException)" in str(reading.fault)
    assert reading.cost_usd(time.time()) is not None


def test_findings_so_far_give_way_to_the_final_ones(
    clients: Clients, task: TaskSurroundings
) -> None:
    s3 = clients.of(row(task), "train").client("s3")
    bucket = clients.of(row(task), "train").bucket()
    job = {
        "name": task.run_id,
        "started_at": 1.0,
        "is_terminal": True,
        "output_path": f"s3://{bucket}/out",
    }
    feed = TrainingFeed()
    for name, worst in (("rules-so-far", "warning"), ("rules", "error")):
        key = f"out/{task.run_id}/rule-output/{name}.json"
        s3.put_object(Bucket=bucket, Key=key, Body=json.dumps({"worst": worst}).encode())
        feed._read_rules([job], S3Objects(s3))
        assert [each["worst"] for each in feed._rules.values()] == [worst]
