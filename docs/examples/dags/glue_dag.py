"""A Glue job writes features every night; its asset event starts `train_on_schedule` with them."""

from __future__ import annotations

from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.sdk import DAG, task

from trainyard_airflow.tasks.shared.assets import DATASET_ASSET

OUTPUT = "s3://my-bucket/features/{{ ds }}/"

with DAG("glue_features", schedule="0 1 * * *", catchup=False):
    write = GlueJobOperator(
        task_id="write_features",
        job_name="features",
        script_args={"--output": OUTPUT},
        deferrable=True,
    )

    @task(outlets=[DATASET_ASSET])
    def announce(place: str, *, outlet_events: dict) -> None:
        """Emit the event of the data set; its extra overrides the defaults of the run that it starts."""
        outlet_events[DATASET_ASSET].extra = {
            "source": place,
            "data_format": "parquet",
            "model": "mlp",
            "target_column": "label",
        }

    write >> announce(OUTPUT)
