"""Arguments that all tasks of the pipeline share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from trainyard_airflow.tasks.shared.task_notes import note_failure, note_start

JOB_RETRIES = 3
"""Each retry may pay for one more attempt of a job, where the retry table allows it."""

PAGES_TAG = "trainyard"
"""Tag of the DAGs whose runs the pages in Airflow's UI show."""

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "trainyard",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "on_execute_callback": note_start,
    "on_failure_callback": note_failure,
}
