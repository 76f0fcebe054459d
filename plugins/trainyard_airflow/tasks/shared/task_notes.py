"""Notes of each task for the report, as XComs: its start, and the reason of its failure.

Tasks may not read the metadata database. The task SDK returns only the state and duration of other tasks.
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
    """Push an XCom with the current try's start time (epoch seconds) and number.

    This function is an `on_execute_callback`. Airflow calls it at the start of a try and after each deferral.
    After a deferral, Airflow reports a later start time. The XCom keeps the first start time of the try.
    """
    ti: Any = context["ti"]
    # Without its index, a mapped task would get the notes of all its siblings.
    noted = ti.xcom_pull(task_ids=ti.task_id, key=STARTED_XCOM_KEY, map_indexes=ti.map_index)
    if noted and noted["try_number"] == ti.try_number:
        return
    started_at = ti.start_date.timestamp() if ti.start_date else None
    ti.xcom_push(key=STARTED_XCOM_KEY, value={"at": started_at, "try_number": ti.try_number})


def note_failure(context: Context) -> None:
    """Push an XCom with the error that failed the task. This function is an `on_failure_callback`.

    If the error is an `AirflowFailException` with a cause, the cause is pushed. The exception itself only
    prevents retries.
    """
    ti: Any = context["ti"]
    error = context.get("exception")
    if isinstance(error, AirflowFailException) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TrainingRunError):
        data = error.to_dict()
    else:
        kind = type(error).__name__ if isinstance(error, BaseException) else "error"
        data = {"error": kind, "what": shortened(str(error or "the task failed"), limit=2000)}
    ti.xcom_push(key=FAILURE_XCOM_KEY, value=data)
