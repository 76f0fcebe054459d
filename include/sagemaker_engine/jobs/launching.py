"""Start of job runners, and their recovery after a restart of the engine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine import SOURCE_FOLDER
from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.jobs.limits import may_retry
from sagemaker_engine.sandbox.processes import is_alive
from sagemaker_engine.state.jobs import ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.state.jobs import JobRow
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from sagemaker_engine.jobs.process import main\n"
    "main(*sys.argv[2:])"
)
JOB_VARIABLE = "TRAINYARD_JOB_FOLDER"
"""Variable in every process of a job, by which leftover processes are found on machines without namespaces."""

_started: set[int] = set()
_reaping = threading.Lock()


def launch(kind: ResourceKind, name: str, settings: EngineSettings) -> None:
    """Start the runner of a stored job in a new session and return at once.

    Raises OSError if the process cannot be started.
    """
    reap()
    folder = settings.job_folder(kind, name)
    folder.mkdir(parents=True, exist_ok=True)
    output = os.open(folder / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [
                *(sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(SOURCE_FOLDER)),
                *(kind.value, name, settings.to_json()),
            ],
            {**os.environ, JOB_VARIABLE: str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
        )
    finally:
        os.close(output)
    _started.add(pid)
    log.info("runner of %s job %s is process %s (root %s)", kind.value, name, pid, settings.root)


def reap() -> None:
    """Reap ended runners, so that none remains as a zombie of the engine. Safe to call from any thread."""
    with _reaping:
        for pid in list(_started):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                _started.discard(pid)


def recover(
    store: JobStore,
    settings: EngineSettings,
    *,
    start: Callable[[ResourceKind, str, EngineSettings], None] = launch,
) -> list[str]:
    """Retry or fail the jobs of dead runners, and start missing runners; return the names of the failed jobs.

    A dead runner counts as an InternalServerError: the job starts again if its RetryStrategy allows that. A job whose
    runner was never started gets one now, by `start`. The function may be called repeatedly, at any time.

    Raises OSError if a process cannot be started.
    """
    reap()
    failed = []
    for kind in ResourceKind:
        for row in store.list(kind):
            if row.is_terminal or is_alive(row.runner_pid, row.runner_start_ticks):
                continue
            if row.runner_pid is not None:
                kill_leftovers(settings.job_folder(kind, row.name))
            if row.runner_pid is None or _releases(store, row):
                start(kind, row.name, settings)
                continue
            after = store.update_state(
                kind, row.name, partial(_fail, row, settings), when=partial(_is_as_seen, row)
            )
            if after.status == "Failed":
                failed.append(row.name)
    return failed


def _releases(store: JobStore, row: JobRow) -> bool:
    """Release a job from its dead runner if its RetryStrategy allows a retry; return whether it was released."""
    if row.kind is not ResourceKind.TRAINING or row.stop_requested_at or row.runner_pid is None:
        return False
    if not may_retry(row.request, row.state["SecondaryStatusTransitions"]):
        return False
    log.warning("the runner of %s died; the job starts again by its RetryStrategy", row.name)
    again = partial(life_cycle.enter, row.kind, secondary="Starting", at=time.time())
    return store.release_runner(row.kind, row.name, pid=row.runner_pid, change=again)


def _is_as_seen(row: JobRow, now: JobRow) -> bool:
    """Return whether a job has not ended and its row still names the runner that was found dead.

    `row` is the job as read when its runner was found dead, `now` its current row.
    """
    return not now.is_terminal and now.runner_pid == row.runner_pid


def _fail(row: JobRow, settings: EngineSettings, state: dict[str, Any]) -> None:
    life_cycle.finish(
        row.kind,
        state,
        status="Failed",
        at=time.time(),
        reason="InternalServerError: The process that supervised the job died "
        f"(process {row.runner_pid}); all processes of the job were ended. Please try your request "
        "again.",
        discount=settings.discount(row.request),
    )


def kill_leftovers(folder: Path) -> int:
    """Kill the remaining processes of the job with this folder; return their number.

    A process of the job has this folder in the environment variable `JOB_VARIABLE`. If the job ran
    in namespaces, none of its programs is left: the kernel ended them together with the runner.
    """
    mark = f"{JOB_VARIABLE}={folder}".encode()
    killed = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed
