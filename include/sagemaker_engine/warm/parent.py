"""The warm parent's process: imports the modules of jobs, then forks a supervisor per requested program.

After the end of its engine, the parent waits 10 seconds (`ABSENCE_S`) for another engine, which can then
continue to use it. If none starts, the parent ends. Running supervisors and programs do not end with the
parent, but at the latest with the instance that requested them.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox.processes import is_alive, is_flock_held, start_ticks_of
from sagemaker_engine.warm import fitness, preload
from sagemaker_engine.warm.supervisor import WarmSupervisor, Warmth

if TYPE_CHECKING:
    from sagemaker_engine.warm.program import Program

log = logging.getLogger(__name__)

BACKLOG = 256
ABSENCE_S = 10.0
"""Seconds that the parent waits for the next engine."""


def main(folder: str, owner: int) -> None:
    """Serve requests for programs on `folder/socket` while an engine needs the parent (`Keeper`).

    `owner` is the process id of the engine that started this parent.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s warm: %(message)s")
    base_path = [path for path in sys.path if path]
    own_environment = dict(os.environ)
    listener = listen(Path(folder))
    stamps = fitness.package_stamps(base_path)
    preload.preload()
    warmth = Warmth(
        base_path=base_path,
        environment=own_environment,
        stamps=stamps,
        loaded=frozenset(name.partition(".")[0] for name in sys.modules) - {"sagemaker_engine"},
    )
    for handler in list(logging.root.handlers):  # Programs configure their own logging.
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)
    Path(folder, "ready").touch()
    program = serve(listener, warmth, Keeper(Path(folder).parent / "engine.lock", owner))
    if program is not None:
        preload.forget(("sagemaker_engine",))
        program.become()


def listen(folder: Path) -> socket.socket:
    """Return the listening socket. It binds a short path, because the path of a Unix socket is limited to 108 bytes."""
    here = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    path = f"/proc/self/fd/{here}/socket"
    Path(folder, "socket").unlink(missing_ok=True)
    Path(folder, "ready").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(BACKLOG)
    os.close(here)
    return listener


class Keeper:
    """Detects whether an engine still needs the parent."""

    def __init__(self, lock: Path, owner: int) -> None:
        """Every engine of the state folder locks the file `lock`; process `owner` started the parent."""
        self._lock = lock
        self._owner = (owner, start_ticks_of(owner))
        self._seen_at = time.monotonic()

    def is_needed(self) -> bool:
        """Return whether an engine still needs the parent.

        This is so if an engine or the process that started the parent (`owner`) is running, or was running within
        the last `ABSENCE_S` seconds.
        """
        now = time.monotonic()
        if is_alive(*self._owner) or is_flock_held(self._lock):
            self._seen_at = now
        return now - self._seen_at < ABSENCE_S


def serve(listener: socket.socket, warmth: Warmth, keeper: Keeper) -> Program | None:
    """Fork a supervisor for each stub that connects to `listener`.

    Returns:
        In the parent: None, once no engine needs the parent. In a forked program process: the
        program to run.
    """
    while keeper.is_needed():
        readable, _, _ = select.select([listener], [], [], 1.0)
        collect()
        if not readable:
            continue
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return WarmSupervisor(link, warmth).run()
        link.close()
    return None


def collect() -> None:
    """Reap supervisors that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
