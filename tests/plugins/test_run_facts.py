"""What tasks leave for the report, mapped ones too."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from trainyard.errors import CapacityError
from trainyard_airflow.tasks.shared.run_facts import first_failure, gather, gather_failed
from trainyard_airflow.tasks.shared.task_notes import note_failure, note_start

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class TaskInstanceOfRun:
    """A task instance over the run's XComs, which it pulls as Airflow 3.3 does: without an index those of all."""

    xcoms: dict[tuple[str, int, str], Any]
    task_id: str
    map_index: int = -1
    try_number: int = 1
    start_date: datetime = NOW
    dag_id: str = "d"
    run_id: str = "r"
    crumbs: list[dict[str, Any]] = field(default_factory=list)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[self.task_id, self.map_index, key] = value

    def xcom_pull(
        self, task_ids: str, key: str = "return_value", map_indexes: int | None = None
    ) -> Any:
        if map_indexes is not None:
            return self.xcoms.get((task_ids, map_indexes, key))
        found = [v for (task, _, name), v in self.xcoms.items() if (task, name) == (task_ids, key)]
        return found[0] if len(found) == 1 else found

    def get_task_breadcrumbs(self, **_: Any) -> list[dict[str, Any]]:
        return self.crumbs


def test_each_mapped_task_notes_its_own_start_and_keeps_it_after_a_deferral() -> None:
    xcoms: dict[tuple[str, int, str], Any] = {}
    for index in (0, 1):
        note_start({"ti": TaskInstanceOfRun(xcoms, "trials_1", index)})  # type: ignore[typeddict-item]
    later = TaskInstanceOfRun(xcoms, "trials_1", 0, start_date=datetime(2026, 1, 2, tzinfo=UTC))
    note_start({"ti": later})  # type: ignore[typeddict-item]

    noted = {"at": NOW.timestamp(), "try_number": 1}
    assert xcoms == {("trials_1", index, "started"): noted for index in (0, 1)}


def test_the_trial_that_failed_the_run_is_told_by_name_and_reason() -> None:
    xcoms: dict[tuple[str, int, str], Any] = {}
    error = CapacityError("no such instances")
    note_failure({"ti": TaskInstanceOfRun(xcoms, "trials_1", 1), "exception": error})  # type: ignore[typeddict-item]
    crumbs = [
        {"task_id": "trials_1", "map_index": 0, "state": "success", "duration": 3.0},
        {"task_id": "trials_1", "map_index": 1, "state": "failed", "duration": 4.0},
        {"task_id": "tune", "map_index": -1, "state": "upstream_failed", "duration": None},
    ]
    context: Any = {"ti": TaskInstanceOfRun(xcoms, "report", crumbs=crumbs)}

    known = gather(context, ["tune"])
    failed = gather_failed(context, besides=["tune"])

    assert [(each.task_id, each.state) for each in known] == [("tune", "upstream_failed")]
    assert [each.task_id for each in failed] == ["trials_1[1]"]
    told = first_failure([*known, *failed])
    assert told is not None
    assert (told["task_id"], told["what"]) == ("trials_1[1]", "no such instances")


def test_failed_watch_is_no_failure_of_the_run() -> None:
    states = {"watch_rules": "failed", "evaluate": "failed"}
    crumbs = [{"task_id": task_id, "state": state} for task_id, state in states.items()]
    context: Any = {"ti": TaskInstanceOfRun({}, "report", crumbs=crumbs)}

    watch, evaluate = gather(context, list(states))

    assert first_failure([watch]) is None
    told = first_failure([watch, evaluate])
    assert told is not None
    assert told["task_id"] == "evaluate"
