"""`ProcessingJobOperator`: one SageMaker processing job, with the field names of the SDK's processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.processing import ProcessingJobType
    from trainyard_airflow.jobs.task_jobs import TaskJobs


class ProcessingJobOperator(SageMakerJobOperator):
    """Runs a script over data on SageMaker; see `SageMakerJobOperator` for the effects of a retry, a clear and a kill.

    A spec given as a mapping may omit `role`; the default is the connection's execution role.
    """

    job_kind: ClassVar[JobKind] = JobKind.PROCESSING
    ui_color = "#eaf6ec"

    def job_type(self, jobs: TaskJobs, context: Context) -> ProcessingJobType:  # noqa: ARG002
        """Return the job type of processing jobs."""
        from trainyard_airflow.jobs.processing import ProcessingJobType

        return ProcessingJobType(jobs, self.spec)
