"""Arguments that all tasks of the pipeline share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainyard_airflow.tasks.shared.task_notes import note_failure, note_start

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB_RETRIES = 3
"""Retries of a job's task. Each may pay for one more attempt of the job, if the retry table allows it."""

PAGES_TAG = "trainyard"
"""Tag of the DAGs whose runs the pages in Airflow's UI show."""

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "trainyard",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "on_execute_callback": note_start,
    "on_failure_callback": note_failure,
}


def dag_arguments_with(given: Mapping[str, Any], *, aws_conn_id: str) -> dict[str, Any]:
    """Return the arguments of a DAG: the defaults, overridden by those of its author.

    Add the tag `PAGES_TAG`: Trainyard's pages in Airflow's UI show only DAGs with this tag.

    Args:
        given: the author's arguments for Airflow's `DAG`.
        aws_conn_id: the connection of all tasks.
    """
    own = {**DEFAULT_ARGS, "aws_conn_id": aws_conn_id, **given.get("default_args", {})}
    tags = {PAGES_TAG, *given.get("tags", ())}
    return {"catchup": False, **given, "default_args": own, "tags": tags}
