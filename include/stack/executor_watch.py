"""Notices that an idle worker of the LocalExecutor was killed, which Airflow does not survive by itself.

Idle workers take turns at one lock to wait for work (Airflow 3.3.2, `executors/local_executor.py`: a
`multiprocessing.SimpleQueue`). One that is killed while it holds the lock leaves it locked for ever: tasks
stay queued. A busy worker holds no lock; its task is given up by its missing heartbeat.

Idle workers also end when a scheduler that has failed waits for the tasks that run. Starting it again ends those tasks'
processes, too: it is given a while first, in which a task that was deleted under it can hear of it and stop its job.
"""

from __future__ import annotations

from include.stack import processes

TITLE = "airflow worker -- LocalExecutor"
IDLE = "<idle>"


GRACE_S = 10.0
"""A task hears of its deletion by its heartbeat, every 3 s here, and asks the service to stop its job."""


class ExecutorWatch:
    """Remembers the workers of one scheduler from look to look."""

    def __init__(self) -> None:
        self._scheduler = 0
        self._idle: set[int] = set()
        self._lost_at: float | None = None

    def is_stuck(self, scheduler: int, *, now: float) -> bool:
        """Tell whether an idle worker of a scheduler that still runs was gone at a look `GRACE_S` ago or earlier.

        Args:
            scheduler: its pid.
            now: of a clock that never goes back, seconds.
        """
        if scheduler != self._scheduler:
            self._scheduler, self._idle, self._lost_at = scheduler, set(), None
        children = processes.children(scheduler)
        if self._idle - set(children) and self._lost_at is None:
            self._lost_at = now
        titles = {pid: processes.command_line(pid) for pid in children}
        self._idle = {
            pid for pid, title in titles.items() if title.startswith(TITLE) and IDLE in title
        }
        is_late = self._lost_at is not None and now - self._lost_at >= GRACE_S
        return is_late and processes.is_running(scheduler)
