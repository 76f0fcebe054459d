"""`TrialJobOperator`: one trial of a hyperparameter search, as a mapped task.

A failure that the trial's hyperparameters can cause is a result, not an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import (
    BudgetExceededError,
    DeviceMemoryError,
    ScriptError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.job_status import JobStatus
from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.jobs.attempts import find_standing
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.steps import Done
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.steps import Step
    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.task_memory import TaskMemory

log = logging.getLogger(__name__)

FAULTS_OF_VALUES = (ScriptError, DeviceMemoryError, TimeLimitError)
"""Errors that a trial's hyperparameters alone can cause."""
_FAILURES = (*FAULTS_OF_VALUES, BudgetExceededError)
"""Errors that end a trial; the budget's only after an attempt."""


class TrialJobOperator(SageMakerJobOperator):
    """Trains one trial of a search.

    If the trial's hyperparameters can be the cause of a failure, the failure is not an error. The task then
    succeeds, and its result has the key `failure` with the reason.

    Other failures, such as an error of the service, a lost machine or a stop, fail the task and are
    retried as for any training. If the spec's budget is too small for another attempt, the trial
    has failed, and the search continues.

    Args:
        trial: the training (`TrialTraining.to_dict()`), the mapped argument. The function given as
            `spec` reads it.
    """

    custom_operator_name: ClassVar[str] = PoolDemand.TRIAL.value
    ui_color = "#e6f0fa"

    def __init__(self, *, trial: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trial = trial

    def end_policy(self, jobs: TaskJobs, memory: TaskMemory) -> TrialPolicy:  # noqa: ARG002
        """Return the policy that treats a trial's failure as its result."""
        return TrialPolicy(memory, number=self.trial["number"])

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the snapshot of the ended job with `trial`, and with `failure` as text if the trial failed."""
        return {**done.result, "trial": dict(self.trial)}

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the trial's result, as `returned` describes it.

        Raises:
            TrainingRunError: the job did not complete, and its hyperparameters are not the cause.
            BudgetExceededError: the budget is too small for the first attempt.
        """
        try:
            return super().execute(context)
        except _FAILURES as error:
            return self._failed_trial(context, error)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume after a deferral; return the result of `execute`.

        Raises:
            TrainingRunError: as `execute`.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except _FAILURES as error:
            return self._failed_trial(context, error)

    def _failed_trial(self, context: Context, error: TrainingRunError) -> dict[str, Any]:
        """Return the result of a trial that ended with `error`, with the error's text as `failure`.

        Most failures of a trial are handled by `TrialPolicy`. This method handles all others, such as a trial
        that reached the task's time limit.

        Raises:
            BudgetExceededError: the given error, if the trial has no job.
        """
        jobs = self.task_jobs(context)
        standing = find_standing(jobs.of_attempt, reported=None)
        attempts = [each for each in (*standing.earlier, standing.snapshot) if each]
        if not attempts and isinstance(error, BudgetExceededError):
            raise error
        self.log.warning("Trial %s failed, the search continues: %s", self.trial["number"], error)
        named = getattr(error, "job_name", None) or jobs.name_of(1)
        name = attempts[-1].name if attempts else named
        facts = attempts[-1].to_dict() if attempts else {"name": name, "status": JobStatus.FAILED}
        return {
            **facts,
            "job_name": name,
            "earlier_attempts": [each.to_dict() for each in attempts[:-1]],
            "trial": dict(self.trial),
            "failure": error.what,
        }


class TrialPolicy(EndPolicy):
    """Policy for a failed trial: the failure is the task's result, and there is no new attempt.

    If the task is started again after the failure, it returns the same failure and starts no new attempt.

    Args:
        memory: state of the task that survives its starts.
        number: number of the trial.
    """

    def __init__(self, memory: TaskMemory, *, number: int) -> None:
        self._memory = memory
        self._number = number

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return True if the job was stopped at its `max_run`: its result is then the task's result."""
        return snapshot.secondary_status == "MaxRuntimeExceeded"

    def failed(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        result: Mapping[str, Any],
        error: TrainingRunError,
    ) -> Step:
        """Return the step that ends the task with `failure` in its result.

        This applies if the trial's hyperparameters can be the cause of the failure.

        Raises:
            TrainingRunError: the given error, if the trial's hyperparameters cannot be its cause.
        """
        if not isinstance(error, FAULTS_OF_VALUES):
            raise error
        # Not reported: a later start of the task returns this trial again in place of another attempt.
        self._memory.note_reported(int(result["attempt"]) - 1)
        log.warning("Trial %s failed, the search continues: %s", self._number, error)
        return Done(result={**result, "failure": error.what})
