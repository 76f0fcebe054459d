"""Fork server that imports Airflow once. Usage: `python fork_server.py LAUNCHER_PID MODULE...`.

All of Airflow's services need the same imports, which take about five seconds. This process imports them
once. Each service is a fork of this process: it starts within a fraction of a second and shares the
imported modules in memory. The process forks twice for each service. The intermediate process ends at once,
so the launcher (a subreaper) adopts the service and can wait for it as for any child.

The server reads requests from stdin. A request is a JSON line {"command": [...], "log": "..."}, and the
response is a JSON line {"pid": ...}. The command is a console script of an installed package. The server
runs it by its entry point.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn, cast

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ADOPTION_LIMIT_S = 10.0


def main(launcher: int, modules: list[str]) -> int:
    """Serve requests until stdin ends, then return 0."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of imports is not an answer
    for module in modules:
        # A module that this Airflow version lacks only makes its service start more slowly.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # keeps imported objects out of garbage collections, so their memory stays shared
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        pid = _fork_twice(request["command"], request["log"], launcher, answers.fileno())
        answers.write(json.dumps({"pid": pid}) + "\n")
        answers.flush()
    return 0


def _fork_twice(command: list[str], log: str, launcher: int, answers: int) -> int:
    """Fork a child that forks the service and ends; return the service's pid."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        service = os.fork()
        if service == 0:
            os.close(write_end)
            os.close(answers)
            _become(command, log, launcher)
        os.write(write_end, str(service).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        pid = int(stream.read())
    os.waitpid(child, 0)
    return pid


def _become(command: list[str], log: str, launcher: int) -> NoReturn:
    """Run the command in this fork, in its own session. It gets SIGTERM when the launcher ends."""
    os.setsid()
    _redirect(log)
    deadline = time.monotonic() + ADOPTION_LIMIT_S
    while os.getppid() != launcher:  # until the intermediate process has ended
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.001)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    title = " ".join((Path(command[0]).name, *command[1:]))
    prctl(PR_SET_NAME, title[:15].encode(), 0, 0, 0)
    sys.argv = list(command)
    (script,) = entry_points(group="console_scripts", name=Path(command[0]).name)
    sys.exit(cast("int | None", script.load()()))


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
