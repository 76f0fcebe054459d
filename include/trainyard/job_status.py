"""`JobStatus`: the status of a SageMaker job, a trial of a search, or an AutoML candidate."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """The service's statuses; only `COMPLETED` is success."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


TERMINAL_STATUSES = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED})
