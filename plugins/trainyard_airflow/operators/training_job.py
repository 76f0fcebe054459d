"""`TrainingJobOperator`: one SageMaker training job, with the field names of the SDK's estimators."""

from __future__ import annotations

from typing import ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator


class TrainingJobOperator(SageMakerJobOperator):
    """Trains on SageMaker; see `SageMakerJobOperator` for the effects of a retry, a clear and a kill.

    A spec given as a mapping may omit `role` and `output_path`. The defaults are the connection's execution role and
    `<root>/runs/<dag>/<run>/output`, with the root of `AwsClients.root`. On spot or in a training plan, the default of
    `checkpoint_s3_uri` is `<root>/runs/<dag>/<run>/checkpoints/<task>/`; None turns checkpoints off.

    Before the job is created, the task logs the settings that AWS would reject, ignore or mishandle. These findings do
    not stop the task; `preflight` rejects a run for them.

    A new attempt gets the same `checkpoint_s3_uri`, so that a script with checkpoints resumes from the last one.

    The spec may also be a function `(sagemaker_session)` that returns an SDK v3 `ModelTrainer`, or
    `from_model_trainer(function, budget_usd=...)`, which adds settings that a `ModelTrainer` lacks (docs/clients.md).

    Raises:
        SpecError: `spec` is a ModelTrainer that was created while the DAG file was parsed.
    """

    custom_operator_name: ClassVar[str] = PoolDemand.TRAINING.value
    ui_color = "#e6f0fa"
