"""The warm parent's process: preload, then fork a supervisor for every program that is asked for.

It ends when its stdin closes, that is, with the engine. Supervisors and programs do not: they go on
as long as the instance that asked for them.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from include.local_engine.warm import preload
from include.local_engine.warm.supervisor import Supervisor, Warmth, package_stamps

if TYPE_CHECKING:
    from include.local_engine.warm.program import Program

log = logging.getLogger(__name__)

BACKLOG = 256


def main(folder: str) -> None:
    """Serve programs on `folder/socket` until stdin closes."""
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
        loaded=frozenset(name.partition(".")[0] for name in sys.modules) - {"include"},
    )
    for handler in list(logging.root.handlers):  # Programs configure logging themselves.
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)
    Path(folder, "ready").touch()
    program = serve(listener, warmth)
    if program is not None:
        preload.forget(("include",))
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


def serve(listener: socket.socket, warmth: Warmth) -> Program | None:
    """Fork a supervisor for every caller; return the program in the process that becomes it.

    None: stdin closed, so that the parent is to end.
    """
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [], 1.0)
        collect()
        if sys.stdin in readable and not os.read(0, 1):
            return None
        if listener not in readable:
            continue
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return Supervisor(link, warmth).run()
        link.close()


def collect() -> None:
    """Collect supervisors that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
