"""Process primitives: start a child that ends with its parent, find all descendants, end them all.

The nearest *subreaper* above a process adopts it when its parent dies. The launcher is a subreaper. So all processes
that a component started, at any depth and in any session, stay descendants that `descendants` finds and `end_all`
ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PDEATHSIG = Path(__file__).with_name("pdeathsig.py")
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEntry:
    """A process, as in the process table.

    Attributes:
        parent: pid of the parent process.
        session: id of the session.
        state: one letter, such as `R` (running) or `Z` (zombie).
        start_ticks: start time in clock ticks since boot; it shows whether a pid was reused.
    """

    pid: int
    parent: int
    session: int
    state: str
    start_ticks: int

    @property
    def is_dead(self) -> bool:
        """True if the process has ended and only its exit status remains."""
        return self.state in "ZX"


class Process(Protocol):
    """A child of this process; `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal that killed it), None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


class AdoptedProcess:
    """A child that another process started and that this process adopted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal that killed it), None while it runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = 0  # its status was collected elsewhere
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            TimeoutExpired: the process still runs after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(POLL_S)
        return code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal_all([self.pid], number)


def become_subreaper() -> None:
    """Make this process adopt orphaned descendants, instead of init (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    command: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in its own session. It ends with this process, and its output is appended to `log`.

    Call this from the main thread only: the kernel ends the child as soon as the thread that started it ends.
    """
    with log.open("ab") as stream:
        return subprocess.Popen(  # noqa: S603 - the stack's own commands
            [sys.executable, "-I", str(PDEATHSIG), str(os.getpid()), *command],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def process_table() -> dict[int, ProcessEntry]:
    """Return all running processes by pid, without zombies."""
    return {entry.pid: entry for entry in _entries() if not entry.is_dead}


def zombies(of: int) -> list[int]:
    """Return the pids of dead children of process `of` whose exit status was not collected."""
    return [entry.pid for entry in _entries() if entry.is_dead and entry.parent == of]


def children(of: int) -> list[int]:
    """Return the pids whose parent is process `of`."""
    return [entry.pid for entry in process_table().values() if entry.parent == of]


def command_line(pid: int) -> str:
    """Return the command line or title of a process; empty if it has ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


def descendants(of: int) -> list[int]:
    """Return the pids of all descendants of process `of`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in process_table().values():
        children.setdefault(entry.parent, []).append(entry.pid)
    found, queue = [], list(children.get(of, ()))
    while queue:
        pid = queue.pop(0)
        found.append(pid)
        queue.extend(children.get(pid, ()))
    return found


def session_members(session: int) -> list[int]:
    """Return the pids of all processes in a session.

    Each component has its own session. So the result has the component and the processes that it forked.
    If the component has ended, the processes that it forked are still found.
    """
    return [entry.pid for entry in process_table().values() if entry.session == session]


def is_running(pid: int, *, start_ticks: int | None = None) -> bool:
    """Return whether process `pid` runs.

    Args:
        pid: the process.
        start_ticks: its `ProcessEntry.start_ticks`. If given, another process that reuses the pid
            does not count.
    """
    entry = _entry(pid)
    return entry is not None and not entry.is_dead and start_ticks in (None, entry.start_ticks)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(of: int, *, grace_s: float) -> int:
    """End all descendants of process `of` and return their number.

    They get SIGTERM and, after `grace_s` seconds, SIGKILL until none is left.
    """
    first = descendants(of)
    signal_all(first, signal.SIGTERM)
    if not _wait_until_gone(of, limit_s=grace_s):
        while left := descendants(of):
            signal_all(left, signal.SIGKILL)
            _reap()
            time.sleep(POLL_S)
    _reap()
    return len(first)


def _wait_until_gone(of: int, *, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while descendants(of):
        if time.monotonic() >= deadline:
            return False
        _reap()
        time.sleep(POLL_S)
    return True


def _reap() -> None:
    """Collect the exit status of ended children and adopted orphans, which otherwise remain as zombies."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _entries() -> Iterator[ProcessEntry]:
    # By os, not pathlib: the supervisor does this twice a second, and a busy machine has many processes.
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal() and (entry := _entry(int(name))) is not None:
            yield entry


def _entry(pid: int) -> ProcessEntry | None:
    """Return the entry of a process; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as stat:  # noqa: PTH123
            return _parsed(stat.read())
    except (OSError, ValueError):
        return None


def _parsed(stat: str) -> ProcessEntry:
    head, _, tail = stat.rpartition(")")  # the name in brackets may hold anything
    fields = tail.split()
    return ProcessEntry(
        pid=int(head.split(" ", 1)[0]),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )
