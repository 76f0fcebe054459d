"""What can be killed in a running stack, found in the process table as an operator would find it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from include.stack import processes
from include.stack.stack import read_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from include.stack.home import Home

SETTLED_AFTER_S = 3.0  # the supervisor looks several times a second
VICTIMS = ("worker", "triggerer", "scheduler", "engine", "rank")


def find(home: Home, victim: str) -> int | None:
    """Return the pid of such a process of the stack, None while there is none.

    The worker is one that runs a task; the rank is one of the training job's, not its launcher.
    """
    match victim:
        case "worker":
            busy = (
                pid
                for pid, title in _titles(home)
                if "LocalExecutor:" in title and "<idle>" not in title
            )
            return next(busy, None)
        case "engine":
            return next(
                (pid for pid, title in _titles(home) if "include.local_engine --port" in title),
                None,
            )
        case "rank":
            return _rank(home)
        case _:
            name = f"airflow {victim}"[:15]
            return next((pid for pid in _below(home) if _is_service(pid, name)), None)


def settled_idle_workers(home: Home) -> list[int]:
    """Return the executor's workers that wait for work, none while one is too young to be known."""
    idle = [pid for pid, title in _titles(home) if "LocalExecutor: <idle>" in title]
    return idle if all(_age_s(pid) > SETTLED_AFTER_S for pid in idle) else []


def training_processes(home: Home) -> list[int]:
    """Return the pids of the stack that run the training script."""
    return [pid for pid, title in _titles(home) if "train_ddp.py" in title]


def _rank(home: Home) -> int | None:
    training = set(training_processes(home))
    table = processes.process_table()
    launchers = {table[pid].parent for pid in training if pid in table}
    return max(training - launchers, default=None) if len(training) > 1 else None


def _is_service(pid: int, name: str) -> bool:
    entry = processes.process_table().get(pid)
    return entry is not None and entry.session == pid and _read(pid, "comm").strip() == name


def _titles(home: Home) -> Iterator[tuple[int, str]]:
    for pid in _below(home):
        yield pid, processes.command_line(pid)


def _below(home: Home) -> list[int]:
    record = read_record(home)
    return [] if record is None else processes.descendants(record.pid)


def _age_s(pid: int) -> float:
    started = processes.process_table()[pid].start_ticks / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # it ended meanwhile
        return ""
