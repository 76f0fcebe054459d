"""`AutoMLTabularOperator`: one AutoML job (Autopilot) over a table, and its best candidate handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard_airflow.hooks.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.automl import AutoMLJobType
    from trainyard_airflow.jobs.task_jobs import TaskJobs


class AutoMLTabularOperator(SageMakerJobOperator):
    """Finds a good model for a table; see `SageMakerJobOperator` for what a retry, a clear and a kill do.

    Its candidates are told as a leaderboard in the task's log whenever there is news of one. A job that its time limit
    ended hands on the best candidate so far, marked by `is_complete` and `ended_by`; one that was stopped fails the
    task. A budget becomes a time limit of the request, so that the service holds it also where no Airflow is left.

    A spec given as a mapping may leave out `role` and `output_path`: the connection's execution role and
    `<root>/runs/<dag>/<run>/automl` take their places.

    Args:
        spec: see `SageMakerJobOperator`; of `AutoMLJobSpec`.
        leaderboard_uri: where all candidates are written as JSON, the best first; `leaderboard.json` below the run's
            folder `automl` when absent. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "leaderboard_uri")
    job_kind: ClassVar[JobKind] = JobKind.AUTOML
    ui_color = "#fdf3e1"

    def __init__(self, *, spec: Any, leaderboard_uri: str | None = None, **kwargs: Any) -> None:
        # An AutoML job has no log of its own, and the lines of all its jobs would be nobody's to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.leaderboard_uri = leaderboard_uri

    def job_type(self, jobs: TaskJobs, context: Context) -> AutoMLJobType:  # noqa: ARG002
        """Return what is different about AutoML jobs."""
        from trainyard_airflow.jobs.automl import AutoMLJobType

        return AutoMLJobType(jobs, self.spec, leaderboard_uri=self.leaderboard_uri)
