"""Listener for the end of a run: it sets the run's note, and corrects the state of a run that was marked failed.

A run that a rule stopped is a success in Airflow. Only its note distinguishes it from others in a list of runs.

A run that is marked failed while none of its tasks is running would end as a success: Airflow 3.3 skips the remaining
tasks and runs the report, which is a teardown, so no task of the run has failed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.utils.state import DagRunState
from sqlalchemy.orm import object_session

from trainyard.runs.record import FAILED
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["on_dag_run_failed", "on_dag_run_success"]

log = logging.getLogger(__name__)
_KEYS = {"report_html", "status"}
"""Keys in the results of Trainyard's reports. A task of another DAG may have the same id."""

_AUTHOR = "trainyard"
"""User id of the listener's notes. The API stores the id of the person; the note of a triggering DAG has no id."""


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ARG001  # as Airflow's hook names them
    """Set the run's note from its report, and mark the run failed if the report has the status `failed`."""
    note_end(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ARG001  # as Airflow's hook names them
    """Set the run's note from its report."""
    note_end(dag_run)


def note_end(dag_run: Any) -> None:
    """Set a run's note from its report, unless a person or the DAG that triggered the run wrote the note.

    If a run was cleared, the note from its earlier report is replaced. A successful run is marked failed if the
    report's status is `failed`.

    This function runs in the scheduler and uses the run's own database session; another session would wait for
    the row that the scheduler has locked. Without a session, as in `dag.test()`, nothing is changed. The
    function never raises.
    """
    try:
        session = object_session(dag_run)
        if session is None:
            return
        report = _returned(session, dag_run)
        note = report.get("note")
        if isinstance(note, str):
            _set_note(dag_run, note)
        if report.get("status") == FAILED and dag_run.state == DagRunState.SUCCESS:
            log.warning("Run %s failed, by its report", dag_run.run_id)
            dag_run.set_state(DagRunState.FAILED)
    except Exception:
        log.exception("Run %s has no note, and its state may be wrong", dag_run.run_id)


def _set_note(dag_run: Any, note: str) -> None:
    """Set a run's note, unless it has a note of a person or of the DAG that triggered the run."""
    noted = dag_run.dag_run_note
    if noted is None:
        dag_run.note = (note, _AUTHOR)
    elif noted.user_id == _AUTHOR or not noted.content:
        noted.content, noted.user_id = note, _AUTHOR


def _returned(session: Session, dag_run: Any) -> dict[str, Any]:
    """Return the result of the run's report task; empty if there is none, or if the task is not Trainyard's."""
    from airflow.models.xcom import XComModel  # noqa: TID251  # the scheduler has the database

    query = XComModel.get_many(
        run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids=TaskId.REPORT, key="return_value"
    )
    row = session.execute(query).first()
    returned = XComModel.deserialize_value(row[0]) if row else None
    return returned if isinstance(returned, dict) and returned.keys() >= _KEYS else {}
