"""`up` and `down`: a stack that a detached supervisor keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.stack import processes
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.components import import_path
from trainyard.stack.engine_alone import exports
from trainyard.stack.identity import USER, load_or_create
from trainyard.stack.leftovers import end_leftovers
from trainyard.stack.run import DAG_ID
from trainyard.stack.stack import (
    START_LIMIT_S,
    Stack,
    StackRecord,
    is_engine_ready,
    read_record,
)
from trainyard.stack.supervisor import last_lines

if TYPE_CHECKING:
    from rich.console import Console

    from trainyard.stack.home import Home

STOP_LIMIT_S = 60.0
POLL_S = 0.3
SERVICES = ("scheduler", "triggerer", "dag_processor")


def up(home: Home, *, console: Console) -> int:
    """Start a stack in the background; once it can start runs, print its address and login.

    If the stack already runs, only print.

    Raises:
        TrainingRunError: the stack failed to start (the error has its last log lines), or a run uses the home.
    """
    if (record := read_record(home)) is not None:
        if record.purpose != "up":
            raise TrainingRunError(
                "a 'make run' is using this folder, and its stack stops when the run ends",
                where=str(home.path),
                got=f"process {record.pid}, Airflow at {record.ui}",
                next_step="wait until the run ends, stop the run with 'make down', or set "
                "TRAINYARD_HOME to another folder",
            )
        console.print("the stack is already up")
        _print_access(home, record, console)
        return 0
    home.prepare()
    supervisor = _start_supervisor(home)
    console.print(f"starting the engine and Airflow (logs in {home.logs})")
    try:
        record = _wait_until_up(home, supervisor)
    except BaseException:
        supervisor.terminate()
        supervisor.wait()
        raise
    _print_access(home, record, console)
    return 0


def down(home: Home, *, console: Console) -> int:
    """Stop the stack, or the remaining processes of a crashed one, and return the exit status 0.

    If nothing runs, only print a message.
    """
    record = read_record(home)
    if record is not None:
        processes.signal_all([record.pid], signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        while record.is_alive() and time.monotonic() < deadline:
            time.sleep(POLL_S)
    ended = end_leftovers(home)
    home.record.unlink(missing_ok=True)
    if ended:
        console.print(f"ended {ended} process(es) that were left over")
    console.print("the stack is down" if record is not None or ended else "nothing was running")
    return 0


def supervise(home: Home, *, console: Console) -> int:
    """Run a stack in the foreground until it receives a signal to stop.

    Raises a TrainingRunError if the stack fails to start or a component keeps crashing.
    """
    stack = Stack(home, print_line=lambda line: console.print(line, markup=False), purpose="up")
    try:
        stack.start()
        while True:
            stack.check()
            time.sleep(POLL_S)
    finally:
        stack.stop()


def not_started(home: Home) -> TrainingRunError:
    """Return the error of a stack that failed to start, with the end of its supervisor's log."""
    return TrainingRunError(
        "the stack did not start",
        where=str(home.logs),
        got=last_lines(home.logs / "supervisor.log"),
        next_step="read supervisor.log in this folder; 'make down' stops the remaining processes",
    )


def _start_supervisor(home: Home) -> subprocess.Popen[bytes]:
    with (home.logs / "supervisor.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - this module, by its own interpreter
            [sys.executable, "-m", "trainyard.stack", "--home", str(home.path), "supervise"],
            cwd=home.project,
            env={**os.environ, "PYTHONPATH": import_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_up(home: Home, supervisor: subprocess.Popen[bytes]) -> StackRecord:
    deadline = time.monotonic() + START_LIMIT_S
    api: AirflowApi | None = None
    while time.monotonic() < deadline and supervisor.poll() is None:
        if (record := read_record(home)) is not None:
            api = api or AirflowApi(record.ui, password=load_or_create(home).password)
            if _is_healthy(api, record) and knows_its_dag(home, api):
                return record
        time.sleep(POLL_S)
    raise not_started(home)


def _is_healthy(api: AirflowApi, record: StackRecord) -> bool:
    health = api.health() or {}
    airflow_is_healthy = all(health.get(name, {}).get("status") == "healthy" for name in SERVICES)
    return airflow_is_healthy and is_engine_ready(record.engine)


def knows_its_dag(home: Home, api: AirflowApi) -> bool:
    """Return whether the stack need not wait for the project's DAG `train_end_to_end` any longer.

    This is so if Airflow has parsed the DAG, if the project does not have it, or if Airflow has import errors.
    Airflow's own pages show these errors.
    """
    if not (home.project / "dags" / f"{DAG_ID}.py").is_file():
        return True
    return api.has_dag(DAG_ID) or bool(api.import_errors())


def _print_access(home: Home, record: StackRecord, console: Console) -> None:
    lines = [
        f"Airflow   {record.ui}",
        f"login     {USER} / {load_or_create(home).password}",
        f"engine    {record.engine}",
        *(f"          {line}" for line in exports(record.engine)),
        "stop it with: make down",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
