"""`CellJobOperator`: one training of a comparison, mapped over its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator
from trainyard_airflow.operators.training_job import training_job_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.training import TrainingJobType


class CellJobOperator(SageMakerJobOperator):
    """Trains one cell of a comparison. If its training fails, the comparison continues without the cell.

    Args:
        cell: the cell (`Cell.to_dict()`), for the function that returns its `spec`; the mapped argument.
    """

    job_kind: ClassVar[JobKind] = JobKind.TRAINING
    custom_operator_name: ClassVar[str] = PoolDemand.CELL.value
    ui_color = "#e6f0fa"

    def __init__(self, *, cell: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell

    def job_type(self, jobs: TaskJobs, context: Context) -> TrainingJobType:
        """Return the job type of training jobs."""
        return training_job_type(self, jobs, context)
