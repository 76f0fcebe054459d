"""`TuneHyperparametersOperator`: one search by SageMaker's Automatic Model Tuning; its result is the best trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.tuning import TuningJobType


class TuneHyperparametersOperator(SageMakerJobOperator):
    """Searches hyperparameters within a budget; see `SageMakerJobOperator` for the effects of a retry, clear and kill.

    A table of the trials is logged at each change of a trial. How a search ends:

    - If it would exceed its `budget_usd` or its time limit, it is stopped. The result is the best trial so far, with
      `is_complete=False`, and `ended_by` names the limit.
    - If a person stops it, the task fails.
    - After the loss of a worker, the next try finds the search by its name, even if the budget has ended it meanwhile.
    - Clearing the task while it waits stops the search. The next search has the rest of the budget.

    Trials run without Trainyard's entrypoint; `TuningJobSpec` describes the consequences for a stop. The service gives
    each trial its own checkpoint prefix below `training.checkpoint_s3_uri`.

    A spec given as a mapping may omit the training's `role` and `output_path`. The defaults are the connection's
    execution role and `<root>/runs/<dag>/<run>/tuning/output`.

    Args:
        spec: a `TuningJobSpec`, in one of the forms of `SageMakerJobOperator`.
        trials_uri: S3 address for the table of all trials as Parquet. The default is `tuning/trials.parquet` below the
            run's prefix; for a mapped task, `tuning/<map index>/trials.parquet`. Templated.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "trials_uri")
    job_kind: ClassVar[JobKind] = JobKind.TUNING
    custom_operator_name: ClassVar[str] = PoolDemand.SEARCH.value
    ui_color = "#f3ecfa"

    def __init__(self, *, spec: Any, trials_uri: str | None = None, **kwargs: Any) -> None:
        # A search has no log of its own, and the lines of all its trials are too many to read.
        super().__init__(spec=spec, stream_logs=False, **kwargs)
        self.trials_uri = trials_uri

    def job_type(self, jobs: TaskJobs, context: Context) -> TuningJobType:  # noqa: ARG002
        """Return the job type of tuning jobs."""
        from trainyard_airflow.jobs.tuning import TuningJobType

        return TuningJobType(jobs, self.spec, trials_uri=self.trials_uri)
