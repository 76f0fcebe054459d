"""Processes inside an instance, as seen from the machine (proc(5)).

Jobs' runners use this module in the environments of engine images, which need not have psutil.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping


_PROC = Path("/proc")
_RESCANS = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of an instance.

    Attributes:
        pid: Process id on this machine.
        parent: Process id of the parent.
        cpu_s: Processor seconds, including those of children that have ended and were waited for.
        resident_pages: Resident memory in pages.
        space: Inode of the PID namespace; 0 if it cannot be read.
        is_over: Whether it has ended and was not waited for yet.
    """

    pid: int
    parent: int
    cpu_s: float = 0.0
    resident_pages: int = 0
    space: int = 0
    is_over: bool = False


def read_processes(proc: Path = _PROC) -> dict[int, Member]:
    """Return all processes of this machine by process id, without those that end during the call."""
    found = {}
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text("ascii", "replace")
        except OSError:
            continue
        # The name, in parentheses, may contain any character; see proc_pid_stat(5).
        fields = stat.rpartition(")")[2].split()
        pid = int(entry.name)
        found[pid] = Member(
            pid=pid,
            parent=int(fields[1]),
            cpu_s=sum(map(int, fields[11:15])) / _TICKS_PER_S,  # utime, stime, cutime, cstime
            resident_pages=int(fields[21]),
            space=_namespace(Path(entry.path, "ns", "pid")),
            is_over=fields[0] in {"Z", "X"},
        )
    return found


def members(first: int) -> list[Member]:
    """Return the processes of one instance, its process 1 first; empty after process 1 has ended.

    `first` is the process id of the instance's process 1 on this machine.
    """
    return [each for each in family(read_processes(), first) if not each.is_over]


def family(processes: Mapping[int, Member], first: int) -> list[Member]:
    """Return the process `first`, all processes in its PID namespace, and the descendants of all these processes.

    The result is empty if `first` has ended. The namespace is needed to find the programs that the warm parent
    (package `warm`) forks: they are in the namespace, but they are not descendants of `first`. If the instance
    has no PID namespace of its own, only `first` and its descendants are returned.
    """
    if first not in processes:
        return []
    children = defaultdict(list)
    for each in processes.values():
        children[each.parent].append(each)
    ours = processes[os.getpid()].space if os.getpid() in processes else 0
    space = processes[first].space
    found = [processes[first]]
    if space not in {0, ours}:
        found += [each for each in processes.values() if each.space == space and each.pid != first]
    known = {each.pid for each in found}
    for each in found:  # grows during the iteration
        new = [child for child in children[each.pid] if child.pid not in known]
        known.update(child.pid for child in new)
        found += new
    return found


def memory_bytes(pid: int, proc: Path = _PROC) -> int:
    """Return a process's proportional set size (PSS) in bytes; 0 if it has ended."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def training_process(first: int) -> int | None:
    """Return the process id of a rank of the instance whose process 1 is `first`; None after the instance's end.

    The rank is the first process with RANK in its environment. RANK may be invisible, as in forks of the warm
    parent (package `warm`). If no process has a visible RANK, return the process with the most resident memory
    other than process 1, or process 1 if there is no other.
    """
    found, rank = _scanned(first)
    for _ in range(_RESCANS):
        # /proc is read entry by entry: a rank that starts meanwhile may be missing while its child is found.
        if rank is None or rank.pid == first or rank.parent in {each.pid for each in found}:
            break
        found, rank = _scanned(first)
    if rank is not None:
        return rank.pid
    others = found[1:] or found
    largest = max(others, key=lambda each: (each.resident_pages, -each.pid), default=None)
    return None if largest is None else largest.pid


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to every process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _scanned(first: int) -> tuple[list[Member], Member | None]:
    """Return the processes of the instance whose process 1 is `first`, and its first rank (None without a rank).

    A rank is a process that has RANK in its environment and whose parent does not. The condition on the
    parent excludes data loaders.
    """
    found = members(first)
    ranks = {each.pid for each in found if _has_rank(each.pid)}
    rank = next((each for each in found if each.pid in ranks and each.parent not in ranks), None)
    return found, rank


def _has_rank(pid: int) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    names = (b"RANK=", b"OMPI_COMM_WORLD_RANK=")
    return any(each.startswith(names) for each in environment.split(b"\0"))


def _namespace(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
