"""Detection of killed LocalExecutor workers, in the cases in which Airflow does not recover from the loss.

- Idle workers share one lock to wait for work (Airflow 3.3.2, `executors/local_executor.py`: a
  `multiprocessing.SimpleQueue`). If a worker is killed while it holds the lock, tasks stay queued forever.
- A busy worker holds no lock. If it is killed, its running task misses heartbeats, and the scheduler then
  fails the task. But a task that the worker had taken and not begun has no heartbeat. It stays queued
  forever, because this executor cannot revoke it (`BaseExecutor.revoke_task`, called by
  `[scheduler] task_queued_timeout`). A new scheduler queues it again.

In both cases, the scheduler must be restarted. The restart ends the processes of the running tasks. Before
the restart, there is a grace period, in which a task that was deleted in Airflow can notice the deletion
and stop its job.

When a scheduler fails, it ends its idle workers and then waits for the running tasks. This looks like the
loss of an idle worker, so such a scheduler is restarted, too.
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
"""Seconds of the grace period. A task notices its deletion by its heartbeat, every 3 s here, and stops its job."""
TAKEN_S = 60.0
"""Seconds after the loss of a busy worker during which its taken but unstarted task is searched for."""
_QUEUED = """
SELECT count(*) FROM task_instance
WHERE state = 'queued' AND julianday('now') - julianday(queued_dttm) > ? / 86400.0
"""


class ExecutorWatch:
    """State of one scheduler's workers between polls.

    Args:
        database: path of Airflow's SQLite database.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._scheduler = 0
        self._workers: dict[int, bool] = {}
        self._idle_lost_at: float | None = None
        self._busy_lost_at: float | None = None

    def stuck(self, scheduler: int, *, now: float) -> str | None:
        """Return the reason to restart the running scheduler, or None.

        Args:
            scheduler: pid of the scheduler.
            now: seconds of a monotonic clock.
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
        """Return whether a killed busy worker seems to have left a task queued.

        This is so if a task stays queued although another worker is idle.

        Args:
            lost_s: seconds since the loss of the busy worker.
        """
        if lost_s > TAKEN_S:
            self._busy_lost_at = None
        return lost_s >= GRACE_S and any(self._workers.values()) and self._num_queued() > 0

    def _num_queued(self) -> int:
        """Return the number of tasks that have been queued for longer than `GRACE_S`."""
        with closing(
            sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=5)
        ) as open_:
            return int(open_.execute(_QUEUED, (GRACE_S,)).fetchone()[0])
