"""`LiveStack`: one real stack for the tests that need one, from `up` to `down`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.stack import leftovers
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.identity import load_or_create
from trainyard.stack.stack import read_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.stack.home import Home

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class LiveStack:
    """A stack that is up."""

    home: Home
    url: str
    engine: str
    password: str
    up_output: str

    @property
    def api(self) -> AirflowApi:
        """A client of its Airflow."""
        return AirflowApi(self.url, password=self.password)

    def client(self, service: str) -> Any:
        """Return a client of its engine."""
        return boto3.client(
            service,
            endpoint_url=self.engine,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106
        )

    def wait(self, is_so: Callable[[], Any], what: str, *, limit_s: float = EVENT_LIMIT_S) -> Any:
        """Wait for a condition up to a limit and return what it returned."""
        deadline = time.monotonic() + limit_s
        while not (value := is_so()):
            assert time.monotonic() < deadline, f"{what} did not happen within {limit_s:.0f} s"
            time.sleep(POLL_S)
        return value

    def end_of(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Wait for a run's end and return its tasks' states."""
        ended = ("success", "failed")
        self.wait(lambda: self.api.run(dag_id, run_id)["state"] in ended, f"the end of {run_id}")
        return {task["task_id"]: task["state"] for task in self.api.tasks(dag_id, run_id)}

    def passes_preflight(self, dag_id: str, run_id: str) -> None:
        """Wait until a run's first task has accepted its conf, and end the run: from here all starts are alike."""

        def settled() -> str:
            states = {each["task_id"]: each["state"] for each in self.api.tasks(dag_id, run_id)}
            return states["preflight"] if states["preflight"] in ("success", "failed") else ""

        assert self.wait(settled, "the end of preflight") == "success"
        self.api.fail_run(dag_id, run_id)

    def runs(self, dag_id: str) -> list[str]:
        """Return the ids of all runs of a DAG."""
        rows = self.database(f"SELECT run_id FROM dag_run WHERE dag_id = '{dag_id}' ORDER BY id")  # noqa: S608
        return [str(run_id) for (run_id,) in rows]

    def database(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement on the metadata database."""
        with closing(sqlite3.connect(self.home.database, timeout=30)) as connection, connection:
            return connection.execute(statement).fetchall()


def launcher(home: Home, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m trainyard.stack` in a home of its own."""
    return subprocess.run(
        [sys.executable, "-m", "trainyard.stack", "--home", str(home.path), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


up: list[LiveStack] = []


def start(home: Home) -> LiveStack:
    """Start a stack in a home and return it."""
    done = launcher(home, "up", timeout=EVENT_LIMIT_S)
    record = read_record(home)
    if done.returncode != 0 or record is None:
        take_down(home)
        pytest.fail(done.stdout + done.stderr)
    password = load_or_create(home).password
    return LiveStack(
        home=home, url=record.ui, engine=record.engine, password=password, up_output=done.stdout
    )


def take_down(home: Home) -> None:
    """End a home's stack; none of its processes may outlive that."""
    down = launcher(home, "down", timeout=EVENT_LIMIT_S)
    assert (down.returncode, leftovers.marked(home)) == (0, []), down.stdout + down.stderr


def take_down_all() -> None:
    """End the session's stack, if there is one."""
    while up:
        take_down(up.pop().home)


def as_json(value: object) -> str:
    """Return a value as SQLite's JSON columns hold it."""
    return json.dumps(value).replace("'", "''")
