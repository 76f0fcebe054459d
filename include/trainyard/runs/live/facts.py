"""Rows of Airflow's database about one run: the input of the pages that show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.runs.evaluation_metrics import finite_number
from trainyard.sagemaker_api.job_kinds import TASK_KINDS, JobKind
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import TaskRecord

OVER = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One DAG run.

    Attributes:
        settings: the run's conf, as it is after preflight. If preflight has no result, it is the conf as given
            at the start. Secrets are masked.
        is_paused: whether the DAG is paused, so that no further task starts.
        returned: the result of each task that has a result, by task id.
        jobs: name of the newest job of each task that has started a job, by task id.
        failed: newest failed job of each task that had one, by task id. Each job is a mapping with its facts.
        connections: `aws_conn_id`, `region_name` and `kind` of each task's job, by task id. A task has
            an entry once it has started a job. The task `report` starts no job, but also has an entry, without
            `kind`. Entries that Trainyard 0.1.0 wrote have no `kind` either.
        links: addresses of the pages of each task's newest job, by task id and link class name.
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
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskRecord, ...] = ()
    returned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    connections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if the run has ended, with or without success."""
        return self.state in OVER

    @property
    def report(self) -> Mapping[str, Any]:
        """Result of the task `report` if the run has ended; otherwise empty.

        The end is checked because of runs that were cleared. Until the task `report` of such a run starts again,
        `returned` still has the result of the earlier report.
        """
        return self.result(TaskId.REPORT) if self.is_over else {}

    @property
    def has_mapped_tasks(self) -> bool:
        """True if the run has instances of mapped tasks, whose jobs are not in `jobs`."""
        return any(each.map_index >= 0 for each in self.tasks)

    @property
    def has_unread_jobs(self) -> bool:
        """True if the run may have jobs that the pages do not read: those of mapped tasks, or of unknown kind."""
        return self.has_mapped_tasks or any(self.kind_of(each) is None for each in self.jobs)

    def kind_of(self, task_id: str) -> JobKind | None:
        """Return the kind of a task's jobs; None if it is unknown."""
        stored = self.connections.get(task_id, {}).get("kind")
        return next((each for each in JobKind if each == stored), TASK_KINDS.get(task_id))

    def result(self, task_id: str) -> Mapping[str, Any]:
        """Return the result of a task; empty if it has none."""
        return self.returned.get(task_id, {})

    def number(self, task_id: str, name: str) -> float | None:
        """Return the finite number under a key of a task's result, or None if there is none."""
        return finite_number(self.result(task_id).get(name))

    def task(self, task_id: str) -> TaskRecord | None:
        """Return an unmapped task's row; None if the run has no such task."""
        return next(
            (each for each in self.tasks if each.task_id == task_id and each.map_index < 0), None
        )


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping; otherwise an empty mapping. Tasks may return values of any type."""
    return value if isinstance(value, dict) else {}
