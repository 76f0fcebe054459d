"""Liveness of processes and file locks, from proc(5)."""

from __future__ import annotations

import os
from pathlib import Path


def is_alive(pid: int | None, start_ticks: int | None) -> bool:
    """Return whether the process with this id and start time is running; False if `pid` is None.

    A zombie does not count as running.
    """
    if pid is None:
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in {"Z", "X"} and int(fields[19]) == start_ticks


def start_ticks_of(pid: int) -> int:
    """Return the start time of a process, in clock ticks since boot (field 22 of proc_pid_stat(5)).

    Raises OSError if the process does not exist.
    """
    text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    return int(text.rpartition(")")[2].split()[19])


def is_flock_held(path: Path) -> bool:
    """Return whether any process holds a lock on the file. The lock itself is not touched."""
    try:
        wanted = f"{_device_of(path)}:{path.stat().st_ino} "
        with Path("/proc/locks").open(encoding="ascii") as file:
            return any(wanted in line for line in file)
    except OSError:
        return False


def _device_of(path: Path) -> str:
    """Return the device of the file's mount in the form of /proc/locks; an empty text if the mount is not listed.

    On btrfs and on overlays, `os.stat` returns another device than /proc/locks.
    """
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text("ascii")
    finally:
        os.close(file)
    mount = next(line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:"))
    for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n"):
        fields = line.split()
        if fields[:1] == [mount.encode()]:
            major, minor = map(int, fields[2].split(b":"))
            return f" {major:02x}:{minor:02x}"
    return ""
