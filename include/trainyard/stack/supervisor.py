"""Supervisor of the components: starts them, restarts dead ones, and stops them in order."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.stack import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trainyard.stack.components import Component

MAX_DEATHS = 5
DEATHS_WINDOW_S = 60.0
LAST_LINES, LAST_CHARACTERS = 15, 1_000


@dataclass(slots=True, kw_only=True)
class _Running:
    component: Component
    process: processes.Process
    deaths: list[float]


class Supervisor:
    """Parent of the stack's processes. Use it from one thread, and call `check` frequently."""

    def __init__(
        self, *, print_line: Callable[[str], None], launch: Callable[[Component], processes.Process]
    ) -> None:
        """`print_line` receives one line per event for the user; `launch` starts a component."""
        self._print_line = print_line
        self._launch = launch
        self._running: dict[str, _Running] = {}

    def start(self, components: Sequence[Component]) -> None:
        """Start the components without waiting for them."""
        for component in components:
            process = self._launch(component)
            self._running[component.name] = _Running(
                component=component, process=process, deaths=[]
            )

    def pid(self, name: str) -> int:
        """Return the process id of a component."""
        return self._running[name].process.pid

    def __contains__(self, name: str) -> bool:
        """Return whether a component of this name was started."""
        return name in self._running

    def pids(self) -> set[int]:
        """Return the process ids of all components."""
        return {running.process.pid for running in self._running.values()}

    def components(self) -> list[Component]:
        """Return the started components."""
        return [running.component for running in self._running.values()]

    def check(self) -> None:
        """Restart each dead component.

        Raises a TrainingRunError if a component died 5 times within 60 s. The error has the last lines of the
        component's log.
        """
        for running in self._running.values():
            code = running.process.poll()
            if code is not None:
                self._restart(running, code)

    def restart(self, name: str, *, because: str) -> None:
        """Kill a component that runs but does not work; the next `check` restarts it.

        `because` is the reason, which is printed for the user.
        """
        self._print_line(because)
        self._running[name].process.kill()

    def stop(self) -> None:
        """Stop all components: first Airflow, which may still use the engine's jobs, then the engine."""
        airflow = [r for r in self._running.values() if r.component.name != "engine"]
        self._stop(airflow)
        self._stop([r for r in self._running.values() if r.component.name == "engine"])
        self._running.clear()

    def _restart(self, running: _Running, code: int) -> None:
        name, now = running.component.name, time.monotonic()
        running.deaths = [at for at in running.deaths if now - at < DEATHS_WINDOW_S] + [now]
        if len(running.deaths) >= MAX_DEATHS:
            raise TrainingRunError(
                f"the {name} died {MAX_DEATHS} times within {DEATHS_WINDOW_S:.0f} s",
                where=str(running.component.log),
                got=f"the last process {ending(code)}; last lines:\n{last_lines(running.component.log)}",
                next_step="read the log; if the stack is damaged, remove it and all its runs with 'make clean'",
            )
        self._end_session(running)
        self._print_line(f"{name} {ending(code)}; starting it again")
        running.process = self._launch(running.component)

    def _end_session(self, running: _Running) -> None:
        if running.component.takes_children_along:
            processes.signal_all(processes.session_members(running.process.pid), signal.SIGKILL)

    def _stop(self, chosen: Sequence[_Running]) -> None:
        for running in chosen:
            with suppress(ProcessLookupError):
                running.process.terminate()
        deadline = time.monotonic() + max((r.component.stop_grace_s for r in chosen), default=0)
        for running in chosen:
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            self._end_session(running)
            running.process.kill()
            running.process.wait()


def ending(code: int) -> str:
    """Return the end of a process in words: `ended with exit code 3`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def last_lines(log: Path) -> str:
    """Return the last lines of a log: at most 15 lines with at most 1,000 characters in total.

    If the last line has more than 1,000 characters, its end is returned. If the log does not exist, the result
    is empty.
    """
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    while len(lines) > 1 and len("\n".join(lines)) > LAST_CHARACTERS:
        del lines[0]
    return "\n".join(lines)[-LAST_CHARACTERS:]
