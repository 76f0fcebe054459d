"""Airflow's listener at the end of a run: its note, and the state of one that was marked failed.

A run that a rule stopped succeeds, as far as Airflow knows: without the note it looks like any other in a list of runs.
A run that somebody marks failed while none of its tasks runs becomes a success: Airflow 3.3 skips the tasks that have
not run, leaves the report to run as the teardown that it is, and finds no failed task afterwards.
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


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ARG001  # as Airflow's hook names them
    """Note how the run ended, and that it failed if that is its report's status."""
    note_end(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ARG001  # as Airflow's hook names them
    """Note how the run ended."""
    note_end(dag_run)


def note_end(dag_run: Any) -> None:
    """Give a run its report's note, unless it has one, and mark it failed if its report has that status.

    It runs in the scheduler, with the run's own session: another one would wait for the row that the scheduler holds.
    Without a session, by hand or in `dag.test()`, nothing is done. No error leaves it.
    """
    try:
        session = object_session(dag_run)
        if session is None:
            return
        report = _returned(session, dag_run)
        note = report.get("note")
        if isinstance(note, str) and not dag_run.note:
            dag_run.note = note
        if report.get("status") == FAILED and dag_run.state == DagRunState.SUCCESS:
            log.warning("Run %s failed, by its report", dag_run.run_id)
            dag_run.set_state(DagRunState.FAILED)
    except Exception:
        log.exception("Run %s has no note, and may be no success", dag_run.run_id)


def _returned(session: Session, dag_run: Any) -> dict[str, Any]:
    """Return what the run's report returned; empty if there is none."""
    from airflow.models.xcom import XComModel  # noqa: TID251  # the scheduler has the database

    query = XComModel.get_many(
        run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids=TaskId.REPORT, key="return_value"
    )
    row = session.execute(query).first()
    returned = XComModel.deserialize_value(row[0]) if row else None
    return returned if isinstance(returned, dict) else {}
