"""A scheduler that lost an idle worker is started again, after its running tasks had time to hear of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from include.stack import processes
from include.stack.executor_watch import GRACE_S, ExecutorWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's process table")

LIMIT_S = 20.0
SCHEDULER = """
(exec -a "airflow worker -- LocalExecutor: <idle>" sleep 600) &
(exec -a "airflow worker -- LocalExecutor: 01a2" sleep 600) &
while true; do wait -n; sleep 0.1; done
"""


@pytest.fixture
def scheduler() -> Iterator[int]:
    """A process with one idle and one busy worker, by their titles."""
    with subprocess.Popen(["/bin/bash", "-c", SCHEDULER], start_new_session=True) as process:
        deadline = time.monotonic() + LIMIT_S
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
    deadline = time.monotonic() + LIMIT_S
    while processes.is_running(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"


def test_lost_idle_worker_is_told_when_the_grace_is_over(scheduler: int) -> None:
    watch = ExecutorWatch()
    assert not watch.is_stuck(scheduler, now=0)
    kill(workers(scheduler)["<idle>"])

    assert not watch.is_stuck(scheduler, now=1)
    assert not watch.is_stuck(scheduler, now=GRACE_S)
    assert watch.is_stuck(scheduler, now=1 + GRACE_S)


def test_lost_busy_worker_is_none_of_its_affairs(scheduler: int) -> None:
    watch = ExecutorWatch()
    assert not watch.is_stuck(scheduler, now=0)
    kill(workers(scheduler)["01a2"])

    assert not watch.is_stuck(scheduler, now=1)
    assert not watch.is_stuck(scheduler, now=100)


def test_next_scheduler_has_lost_nothing(scheduler: int) -> None:
    watch = ExecutorWatch()
    assert not watch.is_stuck(scheduler, now=0)
    kill(workers(scheduler)["<idle>"])
    assert not watch.is_stuck(scheduler, now=1)

    assert not watch.is_stuck(os.getpid(), now=100)
    assert not watch.is_stuck(scheduler, now=200)
