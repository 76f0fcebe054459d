"""`TrialPolicy`: a trial of a search that fails for its hyperparameters is a result, not an error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainyard.errors import DeviceMemoryError, ScriptError, TimeLimitError
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.steps import Done

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.errors import TrainingRunError
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.steps import Step
    from trainyard_airflow.jobs.task_memory import TaskMemory

log = logging.getLogger(__name__)

FAULTS_OF_VALUES = (ScriptError, DeviceMemoryError, TimeLimitError)
"""Errors that a trial's hyperparameters alone can cause."""


class TrialPolicy(EndPolicy):
    """Policy that returns a failed trial as the task's result, also after a restart of the task, without a new attempt.

    Args:
        memory: state of the task that survives its starts.
        number: number of the trial.
    """

    def __init__(self, memory: TaskMemory, *, number: int) -> None:
        self._memory = memory
        self._number = number

    def failed(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        result: Mapping[str, Any],
        error: TrainingRunError,
    ) -> Step:
        """Return the job with `failure` if its hyperparameters can be the cause.

        Raises:
            TrainingRunError: the given error, if they cannot.
        """
        if not isinstance(error, FAULTS_OF_VALUES):
            raise error
        # Not reported: a later start of the task returns this trial again in place of another attempt.
        self._memory.note_reported(int(result["attempt"]) - 1)
        log.warning("Trial %s failed, the search goes on: %s", self._number, error)
        return Done(result={**result, "failure": error.what})
