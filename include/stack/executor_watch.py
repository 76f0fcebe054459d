"""Notices that an idle worker of the LocalExecutor was killed, which Airflow does not survive by itself.

Idle workers take turns at one lock to wait for work (Airflow 3.3.2, `executors/local_executor.py`: a
`multiprocessing.SimpleQueue`). One that is killed while it holds the lock leaves it locked for ever: tasks
stay queued. A busy worker holds no lock; its task is given up by its missing heartbeat.
"""

from __future__ import annotations

from include.stack import processes

TITLE = "airflow worker -- LocalExecutor"
IDLE = "<idle>"


class ExecutorWatch:
    """Remembers the workers of one scheduler from look to look."""

    def __init__(self) -> None:
        self._scheduler = 0
        self._idle: set[int] = set()

    def has_lost_idle_worker(self, scheduler: int) -> bool:
        """Tell whether a worker that was idle at the look before is gone while its scheduler runs."""
        children = processes.children(scheduler)
        titles = {pid: processes.command_line(pid) for pid in children}
        known = self._idle if scheduler == self._scheduler else set()
        self._scheduler = scheduler
        self._idle = {
            pid for pid, title in titles.items() if title.startswith(TITLE) and IDLE in title
        }
        return processes.is_running(scheduler) and bool(known - set(children))
