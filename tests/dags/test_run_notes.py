"""Airflow's listener at the end of a run, on rows of its database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from trainyard_airflow import run_notes

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def ended(database: Callable[[str], Any]) -> Callable[..., tuple[str, str | None]]:
    """Return the state and note of a run that Airflow calls a success, by the status of its report, and its key.

    More than one status are those of a run that was cleared. `note` is the run's note before its end.
    """
    from airflow.models.dagrun import DagRun  # noqa: TID251  # a test may write the database
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.models.xcom import XComModel  # noqa: TID251
    from airflow.utils.session import create_session
    from sqlalchemy import insert, select

    dag_id = database("train_end_to_end").dag_id

    def end(*statuses: str, note: Any = None, key: str = "report_html") -> tuple[str, str | None]:
        now = datetime.now(UTC)
        where = {"dag_id": dag_id, "run_id": f"ended {statuses} {note} {key}"}
        with create_session() as session:
            times = {"start_date": now, "end_date": now}
            session.execute(
                insert(DagRun).values(
                    **where, **times, state="success", run_type="manual", run_after=now
                )
            )
            of_report = {"task_id": "report", "map_index": -1}
            session.execute(
                insert(TaskInstance).values(
                    **where,
                    **of_report,
                    state="success",
                    try_number=1,
                    max_tries=0,
                    pool="default_pool",
                    pool_slots=1,
                )
            )
            run = session.scalar(select(DagRun).where(DagRun.run_id == where["run_id"]))
            run.note = note
            left = XComModel(**where, **of_report, dag_run_id=run.id, key="return_value")
            session.add(left)
            for status in statuses:
                left.value = {
                    "status": status,
                    "note": f"the run: {status}",
                    key: "s3://bucket/report",
                }
                session.flush()
                run_notes.on_dag_run_success(run, "")
            return str(run.state), run.note

    return end


def test_a_run_that_its_report_calls_failed_is_no_success(ended: Any) -> None:
    assert ended("failed") == ("failed", "the run: failed")


@pytest.mark.parametrize("status", ["succeeded", "stopped by a rule"])
def test_any_other_run_keeps_its_state(ended: Any, status: str) -> None:
    assert ended(status) == ("success", f"the run: {status}")


def test_the_note_of_a_cleared_run_is_that_of_its_last_report(ended: Any) -> None:
    assert ended("stopped by a rule", "succeeded") == ("success", "the run: succeeded")


@pytest.mark.parametrize("note", ["from a trigger", ("by a person", "ana")], ids=str)
def test_a_note_that_somebody_else_wrote_is_kept(ended: Any, note: Any) -> None:
    assert ended("succeeded", note=note)[1] == (note if isinstance(note, str) else note[0])


def test_report_of_another_dag_changes_nothing(ended: Any) -> None:
    assert ended("failed", key="address") == ("success", None)
