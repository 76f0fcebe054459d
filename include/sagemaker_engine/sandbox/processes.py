"""Liveness of processes and locks, as proc(5) reports it."""

from __future__ import annotations

from pathlib import Path


def is_alive(pid: int | None, start_ticks: int | None) -> bool:
    """Return whether this very process runs; a zombie does not, nor another one with its number."""
    if pid is None:
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in {"Z", "X"} and int(fields[19]) == start_ticks


def start_ticks_of(pid: int) -> int:
    """Return when the process started, in clock ticks since boot (stat's field 22).

    Fails with OSError: there is no such process.
    """
    text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    return int(text.rpartition(")")[2].split()[19])


def is_flock_held(path: Path) -> bool:
    """Return whether any process holds a lock on the file, without touching the lock."""
    try:
        inode = path.stat().st_ino
        with Path("/proc/locks").open(encoding="ascii") as file:
            return any(line.split()[-3].endswith(f":{inode}") for line in file)
    except OSError:
        return False
