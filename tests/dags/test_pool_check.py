"""A training pool that does not count deferred tasks is warned of, on rows of Airflow's database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from trainyard_airflow import pool_check

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("pool", "named", "counts_deferred", "warns"),
    [
        ("named", "named", False, True),
        ("counting", "counting", True, False),
        ("unnamed", "another", False, False),
        ("unset", "", False, False),
    ],
)
def test_a_run_warns_of_its_training_pool_that_does_not_count_deferred_tasks(
    database: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    pool: str,
    named: str,
    counts_deferred: bool,
    warns: bool,
) -> None:
    from airflow.models.dagrun import DagRun  # noqa: TID251  # a test may write the database
    from airflow.models.pool import Pool  # noqa: TID251
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session
    from sqlalchemy import insert, select

    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", named)
    now = datetime.now(UTC)
    where = {"dag_id": database("train_end_to_end").dag_id, "run_id": f"in pool {pool}"}
    of_task = {"state": None, "try_number": 0, "max_tries": 0, "pool": pool, "pool_slots": 1}
    with create_session() as session:
        session.add(Pool(pool=pool, slots=16, description="", include_deferred=counts_deferred))
        session.execute(
            insert(DagRun).values(**where, state="running", run_type="manual", run_after=now)
        )
        for task_id in ("tune", "train"):
            session.execute(
                insert(TaskInstance).values(**where, **of_task, task_id=task_id, map_index=-1)
            )
        session.flush()
        run = session.scalar(select(DagRun).where(DagRun.run_id == where["run_id"]))
        monkeypatch.setattr(pool_check.log, "disabled", False)  # Airflow's set-up disables loggers
        pool_check.log.addHandler(caplog.handler)  # it also replaces the root's handlers
        try:
            pool_check.on_dag_run_running(run, "")
        finally:
            pool_check.log.removeHandler(caplog.handler)

    warnings = {each.getMessage() for each in caplog.records if each.name == pool_check.__name__}
    assert [each.startswith(f"Pool {pool} of run") for each in warnings] == [True] * warns
