"""Notices that a worker of the LocalExecutor was killed in a way that Airflow does not survive by itself.

Idle workers take turns at one lock to wait for work (Airflow 3.3.2, `executors/local_executor.py`: a
`multiprocessing.SimpleQueue`). One that is killed while it holds the lock leaves it locked for ever: tasks
stay queued. A busy worker holds no lock. Its task is given up by its missing heartbeat, but one that it had only just
taken has none yet: it stays queued for ever, because this executor cannot revoke it (`BaseExecutor.revoke_task`, which
`[scheduler] task_queued_timeout` calls). A new scheduler queues it again.

Idle workers also end when a scheduler that has failed waits for the tasks that run. Starting it again ends those tasks'
processes, too: it is given a while first, in which a task that was deleted under it can hear of it and stop its job.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from trainyard.stack import processes

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "airflow worker -- LocalExecutor"
IDLE = "<idle>"
GRACE_S = 10.0
"""A task hears of its deletion by its heartbeat, every 3 s here, and asks the service to stop its job."""
TAKEN_S = 60.0
"""How long after a busy worker's loss a task is looked for that it had taken and not begun."""
_QUEUED = """
SELECT count(*) FROM task_instance
WHERE state = 'queued' AND julianday('now') - julianday(queued_dttm) > ? / 86400.0
"""


class ExecutorWatch:
    """Remembers the workers of one scheduler from look to look.

    Args:
        database: Airflow's, SQLite.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._scheduler = 0
        self._workers: dict[int, bool] = {}
        self._idle_lost_at: float | None = None
        self._busy_lost_at: float | None = None

    def stuck(self, scheduler: int, *, now: float) -> str | None:
        """Return why the scheduler, which still runs, must be started again; None while it need not.

        Args:
            scheduler: its pid.
            now: of a clock that never goes back, seconds.
        """
        if scheduler != self._scheduler:
            self._scheduler, self._workers = scheduler, {}
            self._idle_lost_at = self._busy_lost_at = None
        self._look(now)
        if not processes.is_running(scheduler):
            return None
        if self._idle_lost_at is not None and now - self._idle_lost_at >= GRACE_S:
            return "an idle executor worker was killed"
        if self._busy_lost_at is not None and self._holds_a_task(now - self._busy_lost_at):
            return "an executor worker was killed with a task that it had not begun"
        return None

    def _look(self, now: float) -> None:
        titles = {pid: processes.command_line(pid) for pid in processes.children(self._scheduler)}
        for pid, was_idle in self._workers.items():
            if pid not in titles and was_idle:
                self._idle_lost_at = self._idle_lost_at or now
            elif pid not in titles:
                self._busy_lost_at = now
        # A title is empty if its process ends, or changes it, while it is read: what was known of it stays.
        self._workers = {
            pid: IDLE in title if title.startswith(TITLE) else self._workers[pid]
            for pid, title in titles.items()
            if title.startswith(TITLE) or pid in self._workers
        }

    def _holds_a_task(self, lost_s: float) -> bool:
        """Return whether a task is queued although a worker waits for one, some time after a busy worker was lost."""
        if lost_s > TAKEN_S:
            self._busy_lost_at = None
        return lost_s >= GRACE_S and any(self._workers.values()) and self._num_queued() > 0

    def _num_queued(self) -> int:
        """Return how many tasks are queued for longer than `GRACE_S`."""
        with closing(
            sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=5)
        ) as open_:
            return int(open_.execute(_QUEUED, (GRACE_S,)).fetchone()[0])
