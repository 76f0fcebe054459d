"""A scheduler that lost an idle worker is started again, after its running tasks had time to hear of it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.stack import processes
from trainyard.stack.executor_watch import GRACE_S, TAKEN_S, ExecutorWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's process table")

SCHEDULER = """
(exec -a "airflow worker -- LocalExecutor: <idle>" sleep 600) &
(exec -a "airflow worker -- LocalExecutor: 01a2" bash -c 'trap "exec -a untitled sleep 600" USR1; sleep 600 & wait') &
while true; do wait -n; sleep 0.1; done
"""


@pytest.fixture
def scheduler() -> Iterator[int]:
    """A process with one idle and one busy worker, by their titles."""
    with subprocess.Popen(["/bin/bash", "-c", SCHEDULER], start_new_session=True) as process:
        deadline = time.monotonic() + EVENT_LIMIT_S
        while len(workers(process.pid)) < 2:
            assert time.monotonic() < deadline, workers(process.pid)
        yield process.pid
        os.killpg(process.pid, signal.SIGKILL)


def workers(scheduler: int) -> dict[str, int]:
    """Return the pids by the last word of the titles."""
    titles = {pid: processes.command_line(pid) for pid in processes.children(scheduler)}
    return {title.split()[4]: pid for pid, title in titles.items() if "LocalExecutor" in title}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + EVENT_LIMIT_S
    while processes.is_running(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"


@pytest.fixture
def watch(tmp_path: Path) -> ExecutorWatch:
    """A watch over a database without a task."""
    database = tmp_path / "airflow.db"
    with closing(sqlite3.connect(database)) as open_, open_:
        open_.execute("CREATE TABLE task_instance (state TEXT, queued_dttm TEXT)")
    return ExecutorWatch(database)


def queue(tmp_path: Path, *, ago_s: float) -> None:
    """Add a task that was queued so long ago, as Airflow writes it."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as open_, open_:
        row = ("queued", f"{at:%Y-%m-%d %H:%M:%S.%f}")
        open_.execute("INSERT INTO task_instance VALUES (?, ?)", row)


def test_lost_idle_worker_is_told_when_the_grace_is_over(
    scheduler: int, watch: ExecutorWatch
) -> None:
    assert watch.stuck(scheduler, now=0) is None
    kill(workers(scheduler)["<idle>"])

    assert watch.stuck(scheduler, now=1) is None
    assert watch.stuck(scheduler, now=GRACE_S) is None
    assert watch.stuck(scheduler, now=1 + GRACE_S) == "an idle executor worker was killed"


def test_lost_busy_worker_is_told_only_with_the_task_that_it_had_not_begun(
    scheduler: int, watch: ExecutorWatch, tmp_path: Path
) -> None:
    assert watch.stuck(scheduler, now=0) is None
    kill(workers(scheduler)["01a2"])

    assert watch.stuck(scheduler, now=1) is None
    queue(tmp_path, ago_s=GRACE_S / 2)
    assert watch.stuck(scheduler, now=1 + GRACE_S) is None
    queue(tmp_path, ago_s=2 * GRACE_S)
    assert "had not begun" in str(watch.stuck(scheduler, now=2 + GRACE_S))


def test_worker_whose_title_could_not_be_read_is_missed_all_the_same(
    scheduler: int, watch: ExecutorWatch, tmp_path: Path
) -> None:
    worker = workers(scheduler)["01a2"]
    assert watch.stuck(scheduler, now=0) is None
    os.kill(worker, signal.SIGUSR1)
    deadline = time.monotonic() + EVENT_LIMIT_S
    while "LocalExecutor" in processes.command_line(worker):
        assert time.monotonic() < deadline, "its title stays"
    assert watch.stuck(scheduler, now=1) is None
    kill(worker)
    assert watch.stuck(scheduler, now=2) is None
    queue(tmp_path, ago_s=2 * GRACE_S)

    assert "had not begun" in str(watch.stuck(scheduler, now=2 + GRACE_S))


def test_task_that_waits_long_after_a_loss_waits_for_something_else(
    scheduler: int, watch: ExecutorWatch, tmp_path: Path
) -> None:
    assert watch.stuck(scheduler, now=0) is None
    kill(workers(scheduler)["01a2"])
    assert watch.stuck(scheduler, now=1) is None
    assert watch.stuck(scheduler, now=2 + TAKEN_S) is None
    queue(tmp_path, ago_s=2 * GRACE_S)

    assert watch.stuck(scheduler, now=3 + TAKEN_S) is None


def test_next_scheduler_has_lost_nothing(scheduler: int, watch: ExecutorWatch) -> None:
    assert watch.stuck(scheduler, now=0) is None
    kill(workers(scheduler)["<idle>"])
    assert watch.stuck(scheduler, now=1) is None

    assert watch.stuck(os.getpid(), now=100) is None
    assert watch.stuck(scheduler, now=200) is None
