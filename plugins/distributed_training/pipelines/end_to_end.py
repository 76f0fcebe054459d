"""The end-to-end pipeline as tasks in order. A DAG file calls `add_end_to_end_tasks` inside its `with DAG(...)`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset, chain

from distributed_training.operators.processing_job import ProcessingJobOperator
from distributed_training.operators.register_model import RegisterModelOperator
from distributed_training.operators.shard_dataset import ShardDatasetOperator
from distributed_training.operators.training_job import TrainingJobOperator
from distributed_training.pipelines import run_state, task_specs
from distributed_training.pipelines.preflight import PreflightOperator
from distributed_training.pipelines.report import ReportOperator
from distributed_training.pipelines.task_notes import note_failure, note_start

DATASET_ASSET = Asset(name="trainyard_dataset", uri="x-trainyard://dataset", group="trainyard")
SHARDS_ASSET = Asset(name="trainyard_shards", uri="x-trainyard://shards", group="trainyard")
MODEL_ASSET = Asset(name="trainyard_model", uri="x-trainyard://model", group="trainyard")

JOB_RETRIES = 3


DEFAULT_ARGS: dict[str, Any] = {
    "owner": "trainyard",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "on_execute_callback": note_start,
    "on_failure_callback": note_failure,
}


def add_end_to_end_tasks() -> None:
    """Add the tasks to the DAG of the surrounding `with`, from `preflight` to `report`.

    `report` is a teardown: it runs whatever happened before it, also when somebody marked the run
    failed. The run's state is that of `outcome`, which succeeds only if every task before it did.
    """
    preflight = PreflightOperator(task_id=run_state.PREFLIGHT)
    shard = ShardDatasetOperator(
        task_id=run_state.SHARD, spec=task_specs.shard_task_spec, asset=SHARDS_ASSET
    )
    train = TrainingJobOperator(
        task_id=run_state.TRAIN, spec=task_specs.train_task_spec, retries=JOB_RETRIES
    )
    evaluate = ProcessingJobOperator(
        task_id=run_state.EVALUATE,
        spec=task_specs.evaluate_task_spec,
        code_location=f"{{{{ ti.xcom_pull(task_ids='{run_state.PREFLIGHT}')['code_uri'] }}}}",
        retries=JOB_RETRIES,
    )
    register = RegisterModelOperator(
        task_id=run_state.REGISTER, version=task_specs.register_task_version, asset=MODEL_ASSET
    )
    report = ReportOperator(task_id=run_state.REPORT).as_teardown()
    # Without callbacks the scheduler settles an empty task itself: no worker is started for it.
    outcome = EmptyOperator(
        task_id=run_state.OUTCOME, on_execute_callback=None, on_failure_callback=None
    )
    chain(preflight, shard, train, evaluate, register, report, outcome)
    register >> outcome
