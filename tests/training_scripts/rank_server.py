"""Forks ranks of a script from a parent that has torch imported: a rank starts in milliseconds.

The arguments are the modules that the parent imports. It reads one JSON request a line on stdin and answers with one
JSON line: `{"start": {"main", "argv", "environ", "log"}}` -> `{"pid"}`; `{"wait": pid, "limit_s": s}` ->
`{"exit_code"}`, null when the limit is over.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
import threading
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "training_scripts"))


def serve() -> None:
    """Answer requests until stdin ends."""
    with redirect_stdout(sys.stderr):  # DeepSpeed writes to stdout
        for name in sys.argv[1:]:
            importlib.import_module(name)
    answer({"ready": threading.active_count()})
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer({"pid": start(request["start"])})
        else:
            answer({"exit_code": wait(request["wait"], request["limit_s"])})


def answer(content: dict[str, Any]) -> None:
    """Write one line to stdout."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def start(job: dict[str, Any]) -> int:
    """Fork one rank; return its pid."""
    main = importlib.import_module(job["main"]).main
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = [job["main"], *job["argv"]]
        os.environ.clear()
        os.environ.update(job["environ"])
        code = main(job["argv"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 a fork must never return into the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, limit_s: float) -> int | None:
    """Return the exit code, negative for a signal; None when it still runs after the limit."""
    poller = select.poll()
    descriptor = os.pidfd_open(pid)
    poller.register(descriptor, select.POLLIN)
    ended = poller.poll(limit_s * 1000)
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if ended else None


if __name__ == "__main__":
    serve()
