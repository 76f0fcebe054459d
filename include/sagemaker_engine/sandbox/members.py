"""Processes inside an instance, as seen from the machine (proc(5))."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable


_RESCANS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of an instance; `resident_pages` is its resident memory in pages."""

    pid: int
    parent: int
    resident_pages: int


def members(first: int) -> list[Member]:
    """Return the processes of the instance whose process 1 is `first`, beginning with it; empty after its end.

    These are the processes in its PID namespace. If it has no PID namespace, these are its descendants.
    """
    everyone = {each.pid: each for each in _everyone()}
    if first not in everyone:
        return []
    own = _namespace(first)
    if own is not None and own != _namespace(os.getpid()):
        others = [each for each in everyone.values() if _namespace(each.pid) == own]
    else:
        others = [each for each in everyone.values() if _descends(each, first, everyone)]
    return [everyone[first], *(each for each in others if each.pid != first)]


def training_process(first: int) -> int | None:
    """Return the process id of a rank of an instance; None after the instance's end.

    It is the first process with RANK in its environment. If no RANK is visible, because the programs are forks of the
    warm parent (package `warm`), it is the largest process besides process 1, or process 1 if it is the only one.
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


def _scanned(first: int) -> tuple[list[Member], Member | None]:
    """Return an instance's processes, and the first rank among them.

    A rank has RANK in its environment, and its parent does not, which excludes data loaders.
    """
    found = members(first)
    ranks = {each.pid for each in found if _has_rank(each.pid)}
    rank = next((each for each in found if each.pid in ranks and each.parent not in ranks), None)
    return found, rank


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to every process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _everyone() -> Iterable[Member]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text("ascii", "replace")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        if fields[0] not in {"Z", "X"}:
            yield Member(pid=int(entry.name), parent=int(fields[1]), resident_pages=int(fields[21]))


def _has_rank(pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    names = (b"RANK=", b"OMPI_COMM_WORLD_RANK=")
    return any(each.startswith(names) for each in environment.split(b"\0"))


def _namespace(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return None


def _descends(member: Member, first: int, everyone: dict[int, Member]) -> bool:
    seen: set[int] = set()
    while member.pid != first:
        if member.pid in seen or member.parent not in everyone:
            return False
        seen.add(member.pid)
        member = everyone[member.parent]
    return True
