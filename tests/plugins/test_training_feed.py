"""Jobs and log of a run, as its page reads them from the engine."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.runs.live.facts import RunRow
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.pages import training_feed
from trainyard_airflow.pages.training_feed import Feeds, TrainingFeed, _LogReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugins.conftest import TaskSurroundings

pytestmark = pytest.mark.engine

LINES = """
print("trainyard start step=0 world_size=1 max_steps=2")
print("trainyard step=1 loss=2.0")
print("trainyard step=2 loss=1.0")
"""


@contextmanager
def calls(clients: AwsClients, service: str) -> Iterator[list[str]]:
    """Yield the operations of a service that are asked for meanwhile."""
    asked: list[str] = []
    client = clients.client(service)
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
        "jobs": {"train": "named by the task"},
    }
    return RunRow(**{**members, **values})


@pytest.fixture
def clients(aws_connection: Any) -> AwsClients:
    return AwsClients(ConnectionArguments())


@dataclass
class Logs:
    """CloudWatch Logs with some streams; a page holds two lines."""

    streams: dict[str, list[str]] = field(default_factory=dict)
    listings: int = 0

    def describe_log_streams(self, *, logStreamNamePrefix: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.listings += 1
        names = [each for each in self.streams if each.startswith(logStreamNamePrefix)]
        return {"logStreams": [{"logStreamName": each} for each in reversed(names)]}

    def get_log_events(
        self,
        *,
        logStreamName: str,  # noqa: N803
        nextToken: str = "0",  # noqa: N803
        **_: Any,
    ) -> dict[str, Any]:
        lines = self.streams[logStreamName][int(nextToken) : int(nextToken) + 2]
        return {
            "events": [{"timestamp": 1, "message": f"{each}\n"} for each in lines],
            "nextForwardToken": str(int(nextToken) + len(lines)),
        }


def test_each_line_of_all_starts_is_read_once_and_in_order() -> None:
    logs = Logs()
    reader = _LogReader("job")

    def texts(now: float, *, is_over: bool = False) -> list[str]:
        return [line.text for line in reader.new_lines(logs, now=now, is_over=is_over)]

    assert texts(0.0) == []
    logs.streams = {"job/algo-1-1700000001": ["1", "2", "3"], "job/algo-2-1700000001": ["other"]}
    assert texts(1.0) == ["1", "2", "3"]
    logs.streams["job/algo-1-1700000001"].append("4")
    logs.streams["job/algo-1-1700000099"] = ["after the restart"]
    assert texts(2.0) == ["4"], "streams are listed every ten seconds"
    assert texts(20.0, is_over=True) == ["after the restart"]
    listed = logs.listings
    assert texts(99.0, is_over=True) == []
    assert logs.listings == listed, "the log of an ended job is whole"


def test_a_long_log_is_read_in_several_pages_and_no_later_stream_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training_feed, "_MOST_PAGES", 2)
    logs = Logs(streams={"job/algo-1-1": [str(each) for each in range(7)], "job/algo-1-2": ["b"]})
    reader = _LogReader("job")
    seen = [[line.text for line in reader.new_lines(logs, now=0.0, is_over=True)] for _ in range(3)]
    assert seen == [["0", "1", "2", "3"], ["4", "5", "6"], ["b"]]


def test_a_page_has_the_jobs_and_the_curve_of_a_run(
    clients: AwsClients, task: TaskSurroundings, script: Any
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
    with calls(clients, "sagemaker") as asked:
        feed.read(row(task), clients)
    assert asked == [], "an ended job is read once"


def test_a_service_that_refuses_leaves_a_page_that_says_so(
    clients: AwsClients, task: TaskSurroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_feed, "job_name", lambda **_: "no/such name")
    reading = TrainingFeed().read(row(task), clients)
    assert reading.jobs == {}
    assert reading.fault is not None
    assert "no/such name" in reading.fault


def test_a_wrong_connection_costs_the_list_no_row(
    aws_connection: Any, task: TaskSurroundings
) -> None:
    wrong = {"preflight": {"connection": {"aws_conn_id": "no_such_connection"}}}
    assert (
        Feeds().costs([row(task, returned=wrong), row(task, run_id="over", state="success")]) == {}
    )
