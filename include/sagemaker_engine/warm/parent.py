"""The warm parent's process: preload, then fork a supervisor for every program that is asked for.

It ends some seconds after the engine, so that the engine that is started next finds it warm.
Supervisors and programs go on as long as the instance that asked for them.
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
from sagemaker_engine.warm import preload
from sagemaker_engine.warm.supervisor import WarmSupervisor, Warmth, package_stamps

if TYPE_CHECKING:
    from sagemaker_engine.warm.program import Program

log = logging.getLogger(__name__)

BACKLOG = 256
ABSENCE_S = 10.0
"""How long the parent waits for the next engine."""


def main(folder: str, owner: int) -> None:
    """Serve programs on `folder/socket` while the owner or any engine of the state folder lives."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s warm: %(message)s")
    base_path = [path for path in sys.path if path]
    own_environment = dict(os.environ)
    listener = listen(Path(folder))
    stamps = package_stamps(base_path)
    preload.preload()
    warmth = Warmth(
        base_path=base_path,
        environment=own_environment,
        stamps=stamps,
        loaded=frozenset(name.partition(".")[0] for name in sys.modules) - {"sagemaker_engine"},
    )
    for handler in list(logging.root.handlers):  # Programs configure logging themselves.
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)
    Path(folder, "ready").touch()
    program = serve(listener, warmth, Keeper(Path(folder).parent / "engine.lock", owner))
    if program is not None:
        preload.forget(("sagemaker_engine",))
        program.become()


def listen(folder: Path) -> socket.socket:
    """Return the listening socket; the path is short whatever the folder's is."""
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
    """Lifetime check of the parent: True while somebody needs it."""

    def __init__(self, lock: Path, owner: int) -> None:
        """`lock` is held by any engine; `owner` is the process that started the parent."""
        self._lock = lock
        self._owner = (owner, start_ticks_of(owner))
        self._seen_at = time.monotonic()

    def is_needed(self) -> bool:
        """Return whether the owner or an engine lives, or did a moment ago."""
        now = time.monotonic()
        if is_alive(*self._owner) or is_flock_held(self._lock):
            self._seen_at = now
        return now - self._seen_at < ABSENCE_S


def serve(listener: socket.socket, warmth: Warmth, keeper: Keeper) -> Program | None:
    """Fork a supervisor for every caller; return the program in the process that becomes it.

    None: nobody needs the parent any more.
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
    """Collect supervisors that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
