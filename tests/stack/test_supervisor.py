"""Components that die are started again; what they leave behind goes with them."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.errors import TrainingRunError
from trainyard.stack import processes
from trainyard.stack.components import Component
from trainyard.stack.supervisor import MAX_DEATHS, Supervisor, last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARENT = (
    "import os,time\nif os.fork() == 0: time.sleep(600)\nprint('up', flush=True)\ntime.sleep(600)"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions: Linux only")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(said: list[str]) -> Iterator[Supervisor]:
    launched = Supervisor(
        print_line=said.append, launch=lambda c: processes.start(c.command, env=c.env, log=c.log)
    )
    yield launched
    launched.stop()


def component(tmp_path: Path, code: str, *, name: str = "scheduler") -> Component:
    return Component(
        name=name,
        command=(sys.executable, "-c", code),
        env=os.environ,
        log=tmp_path / f"{name}.log",
        stop_grace_s=1,
    )


def wait_for_log(path: Path, text: str) -> None:
    deadline = time.monotonic() + EVENT_LIMIT_S
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} never said {text!r}"
        os.sched_yield()


def check_until(supervisor: Supervisor, said: list[str]) -> None:
    deadline = time.monotonic() + EVENT_LIMIT_S
    while not said and time.monotonic() < deadline:
        supervisor.check()


def check_for(supervisor: Supervisor, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        supervisor.check()


def test_a_killed_component_is_started_again_and_that_is_said(
    supervisor: Supervisor, said: list[str], tmp_path: Path
) -> None:
    supervisor.start([component(tmp_path, PARENT)])
    first = supervisor.pid("scheduler")

    os.kill(first, signal.SIGKILL)
    check_until(supervisor, said)

    assert said == ["scheduler was killed by SIGKILL; starting it again"]
    assert supervisor.pid("scheduler") != first


def test_what_a_dead_component_had_forked_ends_before_its_successor_starts(
    supervisor: Supervisor, said: list[str], tmp_path: Path
) -> None:
    supervisor.start([component(tmp_path, PARENT)])
    wait_for_log(tmp_path / "scheduler.log", "up")
    session = supervisor.pid("scheduler")
    assert len(processes.session_members(session)) == 2

    os.kill(session, signal.SIGKILL)
    check_until(supervisor, said)

    assert processes.session_members(session) == []


def test_a_component_that_keeps_dying_ends_in_an_error_with_its_last_lines(
    supervisor: Supervisor, said: list[str], tmp_path: Path
) -> None:
    supervisor.start([component(tmp_path, "print('no such table'); raise SystemExit(3)")])

    with pytest.raises(TrainingRunError, match="the scheduler died") as caught:
        check_for(supervisor, EVENT_LIMIT_S)

    assert "no such table" in str(caught.value)
    assert "ended with exit code 3" in str(caught.value)
    assert len(said) == MAX_DEATHS - 1


def test_last_lines_of_a_log_fit_into_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number} {'x' * 200}\n" for number in range(15)) + "the reason\n")

    error = TrainingRunError("died", got=f"was killed by SIGKILL; last lines:\n{last_lines(log)}")

    assert str(error.got).endswith("the reason")
    assert last_lines(log).splitlines()[0].startswith("11 "), "only whole lines"


def test_stop_leaves_nothing_of_any_component(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start([component(tmp_path, PARENT), component(tmp_path, PARENT, name="engine")])
    wait_for_log(tmp_path / "scheduler.log", "up")
    wait_for_log(tmp_path / "engine.log", "up")
    sessions = [supervisor.pid("scheduler"), supervisor.pid("engine")]

    supervisor.stop()

    deadline = time.monotonic() + 10  # a killed process is gone a moment after the signal
    while left := [pid for session in sessions for pid in processes.session_members(session)]:
        assert time.monotonic() < deadline, left
