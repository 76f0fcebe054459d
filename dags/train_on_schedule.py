"""The end-to-end pipeline every week, and whenever somebody announces new data on the asset `x-trainyard://dataset`."""

from __future__ import annotations

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable

from distributed_training.pipelines.documentation import ON_SCHEDULE
from distributed_training.pipelines.end_to_end import (
    DATASET_ASSET,
    DEFAULT_ARGS,
    add_end_to_end_tasks,
)
from distributed_training.pipelines.params import run_params

with DAG(
    dag_id="train_on_schedule",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("0 3 * * 1", timezone="UTC"), assets=[DATASET_ASSET]
    ),
    catchup=False,
    max_active_runs=1,
    params=run_params(),
    default_args=DEFAULT_ARGS,
    tags=["trainyard", "sagemaker", "distributed-training", "scheduled"],
    doc_md=ON_SCHEDULE,
    dag_display_name="Train on schedule or new data",
):
    add_end_to_end_tasks()
