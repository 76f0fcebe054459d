"""Two DAGs with the same tasks, from the data to a trained and registered model.

`train_end_to_end` is started manually, by REST or with `make run`. `train_on_schedule` starts every Monday, and with
each event of the asset `x-trainyard://dataset`.
"""

from __future__ import annotations

from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable

from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.assets import DATASET_ASSET

AWS_CONN_ID = "aws_default"  # the connection of all tasks

train_end_to_end = training_pipeline(
    dag_id="train_end_to_end",
    aws_conn_id=AWS_CONN_ID,
    dag_display_name="Train end to end",
    max_active_runs=4,
    tags=["trainyard", "sagemaker", "distributed-training"],
    doc_md=documentation.END_TO_END,
)

train_on_schedule = training_pipeline(
    dag_id="train_on_schedule",
    aws_conn_id=AWS_CONN_ID,
    dag_display_name="Train on schedule or new data",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("0 3 * * 1", timezone="UTC"), assets=[DATASET_ASSET]
    ),
    max_active_runs=1,
    tags=["trainyard", "sagemaker", "distributed-training", "scheduled"],
    doc_md=documentation.ON_SCHEDULE,
)
