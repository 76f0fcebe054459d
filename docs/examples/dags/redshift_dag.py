"""Redshift unloads a table to S3 as a task of the run, before an own script trains on it."""

from __future__ import annotations

from airflow.providers.amazon.aws.operators.redshift_data import RedshiftDataOperator

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

TABLE = "s3://my-bucket/unloaded/orders/"

script_pipeline(
    dag_id="redshift_orders",
    schedule="@weekly",
    prepare=lambda: RedshiftDataOperator(
        task_id="unload",
        workgroup_name="analytics",
        database="dev",
        sql=f"UNLOAD ('SELECT * FROM orders') TO '{TABLE}' IAM_ROLE default PARQUET ALLOWOVERWRITE",
        deferrable=True,
    ),
    source_dir="dags/orders",
    entry_point="train.py",
    inputs={"train": TABLE},
    instance_type="ml.m5.2xlarge",
    budget_usd=10,
)
