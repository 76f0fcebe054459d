"""The launcher's death, of any kind, leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.stack import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCHER = """
import os, signal, subprocess, sys, time
from trainyard.stack.command import fork_guarded
fork_guarded()
def stop(*_): sys.exit(7)
signal.signal(signal.SIGTERM, stop)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
if len(sys.argv) > 1: sys.exit(int(sys.argv[1]))
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reaper: Linux only")


@pytest.fixture
def guarded() -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A reaper, its launcher's pid, and the pid of what the launcher started."""
    reaper = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert reaper.stdout is not None
    launcher, child = map(int, reaper.stdout.readline().split())
    yield reaper, launcher, child
    processes.signal_all([reaper.pid, launcher, child], signal.SIGKILL)
    reaper.communicate()


def has_ended(pid: int) -> bool:
    deadline = time.monotonic() + EVENT_LIMIT_S
    while processes.is_running(pid) and time.monotonic() < deadline:
        os.sched_yield()
    return not processes.is_running(pid)


def test_what_a_killed_launcher_started_is_ended(
    guarded: tuple[subprocess.Popen[str], int, int],
) -> None:
    reaper, launcher, child = guarded
    os.kill(launcher, signal.SIGKILL)
    assert reaper.wait(timeout=EVENT_LIMIT_S) == 128 + signal.SIGKILL
    assert has_ended(child)


def test_a_killed_guardian_makes_the_launcher_stop(
    guarded: tuple[subprocess.Popen[str], int, int],
) -> None:
    reaper, launcher, _ = guarded
    reaper.kill()
    assert has_ended(launcher)


def test_sigterm_to_the_guardian_reaches_the_launcher_and_its_exit_code_comes_back(
    guarded: tuple[subprocess.Popen[str], int, int],
) -> None:
    reaper, _, child = guarded
    reaper.terminate()
    assert reaper.wait(timeout=EVENT_LIMIT_S) == 7
    assert has_ended(child)


def test_the_exit_code_is_the_launchers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, "3"], cwd=REPOSITORY, capture_output=True, check=False
    )
    assert done.returncode == 3
