"""Rows of Airflow's database about one run: what every page of a run starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OVER = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task instance. Times are epoch seconds; None for what has not happened."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One DAG run.

    Attributes:
        is_paused: whether its DAG is: then no further task of it starts.
        returned: results of the tasks that have one, by task id.
        jobs: name of the newest job of each task that has started one.
        failed_jobs: snapshot of the newest job of each task whose job failed.
        links: addresses of that job's pages, by link class name.
    """

    dag_id: str
    run_id: str
    state: str
    run_type: str
    queued_at: float | None
    start: float | None
    end: float | None
    note: str | None
    is_paused: bool = False
    conf: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskRow, ...] = ()
    returned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    failed_jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if the run has ended, in whatever way."""
        return self.state in OVER

    def result(self, task_id: str) -> Mapping[str, Any]:
        """Return what a task returned; empty if it has not."""
        return self.returned.get(task_id, {})

    def task(self, task_id: str) -> TaskRow | None:
        """Return an unmapped task's row; None if the run has no such task."""
        return next((each for each in self.tasks if each.task_id == task_id), None)
