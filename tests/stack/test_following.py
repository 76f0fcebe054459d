"""A run as it is followed: which job is shown while its task is tried again, and what an api-server's fault ends."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import requests
from rich.console import Console

from trainyard.errors import RejectedRequestError
from trainyard.stack import airflow_api, run_monitor
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.aws import AwsEndpoint, JobView, cost_so_far
from trainyard.stack.display import LineDisplay
from trainyard.stack.following import RunFollower
from trainyard.stack.run_monitor import RunMonitor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ScriptedAirflow:
    """What an api-server answers of a run with one task."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = {"task_id": "train", "id": "1", "operator": "TrainingJob"}
        self.job_name: str | None = None

    def now(self, state: str, *, try_number: int, job_name: str | None) -> None:
        """Let the task be in this state, with this job pushed."""
        self.task |= {"state": state, "try_number": try_number}
        self.job_name = job_name

    def task_order(self, _dag_id: str) -> list[str]:
        return ["train"]

    def run(self, *_: str) -> dict[str, Any]:
        return {"state": "running", "conf": {"max_cost_usd": 1.0}}

    def tasks(self, *_: str) -> list[dict[str, Any]]:
        return [self.task]

    def xcom(self, *_: str) -> str | None:
        return self.job_name


class Aws:
    """An endpoint that knows every job."""

    def job(self, name: str, *, kind: str) -> JobView:
        return JobView(name=name, status=kind, metrics={}, cost_usd=0.25)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("TrainingJobOperator", "training"),
        ("ProcessingJobOperator", "processing"),
        ("TuneHyperparametersOperator", "tuning"),
    ],
)
def test_a_job_is_looked_for_among_those_of_its_kind(operator: str, kind: str) -> None:
    api = ScriptedAirflow()
    api.task["operator"] = operator
    api.now("deferred", try_number=1, job_name="j")

    job = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run").poll().job

    assert job is not None
    assert job.status == kind


def test_a_second_try_shows_its_own_job_once_it_has_one() -> None:
    api = ScriptedAirflow()
    follower = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run")

    def shown(state: str, *, try_number: int, job_name: str | None) -> str | None:
        api.now(state, try_number=try_number, job_name=job_name)
        job = follower.poll().job
        return job and job.name

    assert shown("queued", try_number=1, job_name=None) is None
    assert shown("running", try_number=1, job_name=None) is None
    assert shown("deferred", try_number=1, job_name="train-1") == "train-1"
    assert shown("running", try_number=2, job_name="train-1") == "train-1"
    assert shown("deferred", try_number=2, job_name="train-a2") == "train-a2"


def test_cost_of_a_run_is_that_of_every_job_once() -> None:
    api = ScriptedAirflow()
    follower = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run")

    for name in ("train-1", "train-1", "train-2"):
        api.now("running", try_number=1, job_name=name)
        view = follower.poll()

    assert (view.cost_usd, view.max_cost_usd) == (0.5, 1.0)


def test_cost_so_far_goes_by_the_bill_once_there_is_one() -> None:
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    job: dict[str, Any] = {
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        "TrainingStartTime": now - timedelta(hours=1),
    }

    assert cost_so_far(job, now=now) == pytest.approx(0.23)
    assert cost_so_far({**job, "BillableTimeInSeconds": 1800}, now=now) == pytest.approx(0.115)
    assert cost_so_far({**job, "ResourceConfig": {"InstanceType": "ml.z9"}}, now=now) is None
    assert cost_so_far({"ResourceConfig": job["ResourceConfig"]}, now=now) == 0.0


class ApiServer(BaseHTTPRequestHandler):
    """An api-server with one run, which succeeds at the second look. `num_faults` requests are answered 503."""

    num_faults = 0
    num_looks = 0
    asked: list[str]

    def do_POST(self) -> None:
        self._answer({"access_token": "t", "dag_run_id": "r"})

    def do_PATCH(self) -> None:
        self._answer({})

    def do_GET(self) -> None:
        if self.path.endswith("/dagRuns/r"):
            type(self).num_looks += not self.num_faults
            self._answer({"state": "success" if self.num_looks > 1 else "running"})
        elif "/xcomEntries/" in self.path:
            self._answer({"detail": "not found"}, 404)
        else:
            self._answer({"tasks": [], "task_instances": []})

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.num_faults and "/auth/" not in self.path:
            type(self).num_faults -= 1
            content, status = {"detail": "database is locked"}, 503
        self.asked.append(f"{self.command} {self.path.partition('?')[0]} {status}")
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def api_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[ApiServer], AirflowApi]]:
    monkeypatch.setattr(airflow_api, "PAUSES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(run_monitor, "POLL_S", 0.0)
    handler = type("OneApiServer", (ApiServer,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield handler, AirflowApi(f"http://127.0.0.1:{server.server_port}", password="p")  # noqa: S106
        server.shutdown()


@pytest.mark.parametrize("num_faults", [1, 3, 9, 30])
def test_a_run_outlives_the_faults_of_the_api_server(
    api_server: tuple[type[ApiServer], AirflowApi], tmp_path: Path, num_faults: int
) -> None:
    server, api = api_server

    class FaultyFromTheStart(LineDisplay):
        def print_line(self, line: str) -> None:
            if line.startswith("started"):
                server.num_faults = num_faults

    monitor = RunMonitor(
        api=api,
        aws=AwsEndpoint("http://127.0.0.1:9"),
        display=FaultyFromTheStart(Console(file=io.StringIO())),
        dag_id="dag",
        reports=tmp_path,
    )

    assert monitor.run({}) == 0
    assert sum(each.endswith("503") for each in server.asked) == num_faults
    assert [each for each in server.asked if each.startswith("PATCH")] == [
        "PATCH /api/v2/dags/dag 200"  # unpaused; the run was not marked failed
    ]


def test_faults_are_no_refusals_and_a_start_is_asked_for_once(
    api_server: tuple[type[ApiServer], AirflowApi],
) -> None:
    server, api = api_server
    server.num_faults = 10

    with pytest.raises(requests.HTTPError, match="503"):
        api.trigger("dag", conf={})
    with pytest.raises(requests.HTTPError, match="503"):
        api.run("dag", "r")
    server.num_faults = 0
    with pytest.raises(RejectedRequestError, match="not found"):
        api._get("/xcomEntries/x")

    asked = [each.partition("/")[0] for each in server.asked if each.endswith("503")]
    assert asked == ["POST ", *["GET "] * 4]
