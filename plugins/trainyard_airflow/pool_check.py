"""Listener for the start of a run: it warns of a training pool that does not count deferred tasks.

A training is deferred while its job runs, so such a pool limits nothing. The check needs Airflow's database. A DAG file
and a task cannot read it, but the scheduler, which calls this listener, can.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from sqlalchemy import select
from sqlalchemy.orm import object_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

__all__ = ["on_dag_run_running"]

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:  # noqa: ARG001  # as Airflow's hook names them
    """Log a warning for each training pool of the run that does not count deferred tasks.

    The warning is in the scheduler's log. The listener uses the run's own database session, and checks nothing
    without one, as in `dag.test()`. It never raises.
    """
    from trainyard_airflow.cluster_policy import pool_names  # imports Airflow's settings

    try:
        session, names = object_session(dag_run), pool_names()
        if session is None or not names:
            return
        for name in _without_deferred(session, dag_run, names):
            log.warning(
                "Pool %s of run %s of DAG %s does not count deferred tasks, so it limits no training; set "
                "`Include Deferred` of the pool in Airflow's UI, or run `airflow pools set ... --include-deferred`",
                name,
                dag_run.run_id,
                dag_run.dag_id,
            )
    except Exception:
        log.exception("The training pools of run %s could not be checked", dag_run.run_id)


def _without_deferred(session: Session, dag_run: Any, names: Sequence[str]) -> Sequence[str]:
    """Return those of the named pools that have a task of the run and do not count deferred tasks."""
    from airflow.models.pool import Pool  # noqa: TID251  # the scheduler has the database
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251  # likewise

    query = (
        select(Pool.pool)
        .join(TaskInstance, TaskInstance.pool == Pool.pool)
        .where(TaskInstance.dag_id == dag_run.dag_id, TaskInstance.run_id == dag_run.run_id)
        .where(Pool.pool.in_(names), Pool.include_deferred.is_(False))
        .distinct()
        .order_by(Pool.pool)
    )
    return [name for name in session.scalars(query) if name]
