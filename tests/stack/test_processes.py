"""Nothing that was started, however deep, escapes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.stack import processes

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process table: Linux only")


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + EVENT_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def in_python(code: str) -> subprocess.Popen[str]:
    """Run code in a process of its own that has `processes` imported."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_started_process_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = in_python(f"""
        import os, sys, time
        from pathlib import Path
        from trainyard.stack import processes
        log = Path({str(tmp_path / "log")!r})
        child = processes.start(["sleep", "600"], env=os.environ, log=log)
        print(child.pid, flush=True)
        time.sleep(600)
    """)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    assert processes.is_running(pid)

    starter.kill()
    starter.communicate()

    assert wait_for(lambda: not processes.is_running(pid))


def test_end_all_reaches_orphans_in_sessions_of_their_own() -> None:
    launcher = in_python("""
        import os, subprocess, sys
        from trainyard.stack import processes
        processes.become_subreaper()
        escape = "import os,sys,time\\nos.setsid()\\nif os.fork(): os._exit(0)\\ntime.sleep(600)"
        subprocess.run([sys.executable, "-c", escape])
        found = processes.descendants(os.getpid())
        print(len(found), processes.end_all(os.getpid(), grace_s=2), flush=True)
        print(len(processes.descendants(os.getpid())), flush=True)
    """)
    out, _ = launcher.communicate(timeout=EVENT_LIMIT_S)
    assert out.split() == ["1", "1", "0"]


def test_end_all_kills_what_ignores_sigterm() -> None:
    launcher = in_python("""
        import os, subprocess, sys
        from trainyard.stack import processes
        deaf = ["import signal, time", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"]
        deaf += ["print(1, flush=True)", "time.sleep(600)"]
        command = [sys.executable, "-c", "; ".join(deaf)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        child.stdout.readline()
        processes.end_all(os.getpid(), grace_s=0.2)
        print(len(processes.descendants(os.getpid())), flush=True)
    """)
    out, _ = launcher.communicate(timeout=EVENT_LIMIT_S)
    assert out.split() == ["0"]


def test_a_process_name_with_brackets_and_spaces_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) b ("
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "600"]) as process:
        try:
            assert processes.process_table()[process.pid].parent == os.getpid()
        finally:
            process.kill()


def test_a_recycled_pid_is_not_mistaken_for_the_process() -> None:
    me = processes.process_table()[os.getpid()]
    assert processes.is_running(me.pid, start_ticks=me.start_ticks)
    assert not processes.is_running(me.pid, start_ticks=me.start_ticks + 1)


def test_an_adopted_process_reports_the_signal_that_killed_it() -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    process = processes.AdoptedProcess(pid)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0)

    process.kill()

    assert process.wait(timeout=EVENT_LIMIT_S) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
