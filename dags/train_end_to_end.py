"""Data in, trained and registered model out: started by the form, by REST, or with `make run`."""

from __future__ import annotations

from airflow.sdk import DAG

from distributed_training.pipelines.documentation import END_TO_END
from distributed_training.pipelines.end_to_end import DEFAULT_ARGS, add_end_to_end_tasks
from distributed_training.pipelines.params import run_params

with DAG(
    dag_id="train_end_to_end",
    schedule=None,
    catchup=False,
    max_active_runs=4,
    params=run_params(),
    default_args=DEFAULT_ARGS,
    tags=["trainyard", "sagemaker", "distributed-training"],
    doc_md=END_TO_END,
    dag_display_name="Train end to end",
):
    add_end_to_end_tasks()
