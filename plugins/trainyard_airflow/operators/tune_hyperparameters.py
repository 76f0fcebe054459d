"""`TuneHyperparametersOperator`: one search by SageMaker's Automatic Model Tuning, and its winner handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.hooks.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.tuning import TuningJobType


class TuneHyperparametersOperator(SageMakerJobOperator):
    """Searches good hyperparameters under a ceiling; see `SageMakerJobOperator` for what a retry, clear and kill do.

    The search's trials are told as a table in the task's log whenever there is news of one. A search that crosses its
    `budget_usd` or its time is stopped, and the best so far is the result, marked by `is_complete` and `ended_by`; one
    that a person stops fails the task. A worker that is lost finds its search again by its name, also one that the
    budget has ended meanwhile; a cleared task ends its search and begins another, on what is left of the budget.

    Trials run without an entrypoint of Trainyard's (`TuningJobSpec` says what that means for a stop), and the service
    gives each one its own checkpoint prefix below `training.checkpoint_s3_uri`.

    A spec given as a mapping may leave out the training's `role` and `output_path`: the connection's execution role and
    `<root>/runs/<dag>/<run>/tuning/output` take their places.

    Args:
        spec: see `SageMakerJobOperator`; of `TuningJobSpec`.
        trials_uri: where the table of all trials is written as Parquet; below the run's folder when absent, in
            `tuning/trials.parquet`, of a mapped task in `tuning/<map index>/trials.parquet`. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "trials_uri")
    job_kind: ClassVar[JobKind] = JobKind.TUNING
    custom_operator_name: ClassVar[str] = PoolDemand.SEARCH.value
    ui_color = "#f3ecfa"

    def __init__(self, *, spec: Any, trials_uri: str | None = None, **kwargs: Any) -> None:
        # A search has no log of its own, and the lines of all its trials would be nobody's to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.trials_uri = trials_uri

    def job_type(self, jobs: TaskJobs, context: Context) -> TuningJobType:  # noqa: ARG002
        """Return what is different about searches."""
        from trainyard_airflow.jobs.tuning import TuningJobType

        return TuningJobType(jobs, self.spec, trials_uri=self.trials_uri)
