"""Finder of a running stack's processes in the process table, for fault injection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.stack import processes
from trainyard.stack.stack import read_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.stack.home import Home

WORKER = "LocalExecutor: "


def find(home: Home, victim: str) -> int | None:
    """Return the pid of a process of the stack; None if there is none.

    Args:
        home: home of the stack.
        victim: `engine`, `scheduler`, `triggerer`, `dag-processor`, `api-server`, `worker` or `rank`. The API
            server is the one for the UI and the REST API. The worker is one that runs a task. The rank is a
            process of the training job, but not the launcher of the ranks.
    """
    match victim:
        case "worker":
            return next(iter(busy_workers(home).values()), None)
        case "api-server":
            return _api_server(home)
        case "engine":
            return next(
                (pid for pid, title in _titles(home) if "sagemaker_engine --port" in title),
                None,
            )
        case "rank":
            return _rank(home)
        case _:
            name = f"airflow {victim}"[:15]
            return next((pid for pid in _below(home) if _is_service(pid, name)), None)


def busy_workers(home: Home) -> dict[str, int]:
    """Return the pid of each executor worker that runs a task, by the task instance's id."""
    runs = {title.partition(WORKER)[2]: pid for pid, title in _titles(home) if WORKER in title}
    return {instance: pid for instance, pid in runs.items() if instance != "<idle>"}


def training_processes(home: Home) -> list[int]:
    """Return the pids of the stack's processes that run the training script."""
    return [pid for pid, title in _titles(home) if "train_ddp.py" in title]


def _rank(home: Home) -> int | None:
    training = set(training_processes(home))
    table = processes.process_table()
    launchers = {table[pid].parent for pid in training if pid in table}
    return max(training - launchers, default=None) if len(training) > 1 else None


def _api_server(home: Home) -> int | None:
    record = read_record(home)
    ending = "" if record is None else f" port:{record.ui.rpartition(':')[2]}"
    found = (pid for pid, title in _titles(home) if "api_server --" in title)
    return next((pid for pid in found if processes.command_line(pid).endswith(ending)), None)


def _is_service(pid: int, name: str) -> bool:
    entry = processes.process_table().get(pid)
    return entry is not None and entry.session == pid and _read(pid, "comm").strip() == name


def _titles(home: Home) -> Iterator[tuple[int, str]]:
    for pid in _below(home):
        yield pid, processes.command_line(pid)


def _below(home: Home) -> list[int]:
    record = read_record(home)
    return [] if record is None else processes.descendants(record.pid)


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # it ended meanwhile
        return ""
