"""`AutoMLTabularOperator`: one AutoML job (Autopilot) over a table, with its best candidate as the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.automl import AutoMLJobType
    from trainyard_airflow.jobs.task_jobs import TaskJobs


class AutoMLTabularOperator(SageMakerJobOperator):
    """Finds a good model for a table; see `SageMakerJobOperator` for the effects of a retry, a clear and a kill.

    The leaderboard is logged at each change of a candidate. If the time limit ended the job, the result is the best
    candidate so far, with `is_complete=False` and `ended_by="time"`. If the job was stopped, the task fails. A budget
    becomes a time limit in the request, which the service enforces without Airflow.

    A spec given as a mapping may omit `role` and `output_path`. The defaults are the connection's execution role and
    `<root>/runs/<dag>/<run>/automl`.

    Args:
        spec: an `AutoMLJobSpec`, in one of the forms of `SageMakerJobOperator`.
        leaderboard_uri: S3 address for all candidates as JSON, the best first; by default
            `automl/leaderboard.json` below the run's prefix. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "leaderboard_uri")
    job_kind: ClassVar[JobKind] = JobKind.AUTOML
    ui_color = "#fdf3e1"

    def __init__(self, *, spec: Any, leaderboard_uri: str | None = None, **kwargs: Any) -> None:
        # An AutoML job has no log of its own, and the lines of all its jobs are too many to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.leaderboard_uri = leaderboard_uri

    def job_type(self, jobs: TaskJobs, context: Context) -> AutoMLJobType:  # noqa: ARG002
        """Return the job type of AutoML jobs."""
        from trainyard_airflow.jobs.automl import AutoMLJobType

        return AutoMLJobType(jobs, self.spec, leaderboard_uri=self.leaderboard_uri)
