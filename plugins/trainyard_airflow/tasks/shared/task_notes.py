"""Notes of every task for the report: its start, and the reason of its failure.

Tasks may not read the metadata database, and the task SDK tells them of other tasks only state and
duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from trainyard.errors import TrainingRunError, shortened

if TYPE_CHECKING:
    from airflow.sdk import Context

STARTED_XCOM_KEY = "started"
FAILURE_XCOM_KEY = "failure"


def note_start(context: Context) -> None:
    """Leave the start and number of the task's try (an `on_execute_callback`).

    Airflow calls this again, with a new start, when a deferral ends: the first start of a try
    stays.
    """
    ti: Any = context["ti"]
    # Without its index a mapped task would get what all its siblings noted.
    noted = ti.xcom_pull(task_ids=ti.task_id, key=STARTED_XCOM_KEY, map_indexes=ti.map_index)
    if noted and noted["try_number"] == ti.try_number:
        return
    started_at = ti.start_date.timestamp() if ti.start_date else None
    ti.xcom_push(key=STARTED_XCOM_KEY, value={"at": started_at, "try_number": ti.try_number})


def note_failure(context: Context) -> None:
    """Leave the error that failed the task (an `on_failure_callback`); of one that never retries, its cause."""
    ti: Any = context["ti"]
    error = context.get("exception")
    if isinstance(error, AirflowFailException) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TrainingRunError):
        told = error.to_dict()
    else:
        kind = type(error).__name__ if isinstance(error, BaseException) else "error"
        told = {"error": kind, "what": shortened(str(error or "the task failed"), limit=2000)}
    ti.xcom_push(key=FAILURE_XCOM_KEY, value=told)
