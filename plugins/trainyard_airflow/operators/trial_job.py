"""`TrialJobOperator`: one training of a search that Airflow maps; a trial that fails counts, and fails nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import DeviceMemoryError, ScriptError, TimeLimitError
from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.operators.task_memory import TaskMemory
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot

_OF_ITS_VALUES = (ScriptError, DeviceMemoryError, TimeLimitError)


class TrialJobOperator(TrainingJobOperator):
    """Trains one trial; what its hyperparameters alone can be blamed for is a result, `{"failure": ...}`.

    Everything else (the service, a lost machine, a stop) is an error as for any training: retried where that helps.

    Args:
        trial: which trial this is (`AskedTrials.to_dict()`), for the function that makes its `spec`. Mapped over.
    """

    custom_operator_name: ClassVar[str] = PoolDemand.TRIAL.value

    def __init__(self, *, trial: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trial = trial

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the snapshot of the ended job with `trial`, and `failure` in words where the trial failed.

        Raises:
            TrainingRunError: the job did not complete, and not for its hyperparameters.
        """
        try:
            return {**super().execute(context), "trial": dict(self.trial)}
        except _OF_ITS_VALUES as error:
            return self._failed_trial(context, error)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> dict[str, Any]:
        """Return what `execute` returns, by whatever method the task goes on.

        Raises:
            TrainingRunError: likewise.
        """
        try:
            told = super().resume_execution(next_method, next_kwargs, context)
            return {**told, "trial": dict(self.trial)}
        except _OF_ITS_VALUES as error:
            return self._failed_trial(context, error)

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        """Return the failed trial with all its attempts, as often as the task is started: none of them runs again."""
        try:
            return super()._failed(context, snapshot, result, earlier)
        except _OF_ITS_VALUES as error:
            if error.job_name != snapshot.name:
                raise  # it is another rung's
            TaskMemory(context).note_reported(int(result["attempt"]) - 1)
            self.log.warning("Trial %s failed, the search goes on: %s", self.trial["number"], error)
            return {**result, "failure": error.what}

    def _failed_trial(self, context: Context, error: Exception) -> dict[str, Any]:
        self.log.warning("Trial %s failed, the search goes on: %s", self.trial["number"], error)
        name = getattr(error, "job_name", None) or self.name_of(context, 1)
        snapshot = self.jobs.describe(name)
        told = snapshot.to_dict() if snapshot else {"name": name, "status": "Failed"}
        what = str(getattr(error, "what", error))
        return {**told, "job_name": name, "trial": dict(self.trial), "failure": what}
