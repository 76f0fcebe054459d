"""Fraud detection: a small network is trained anew every hour on the transactions so far, cheaply and on spot."""

from __future__ import annotations

from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline

training_pipeline(
    dag_id="fraud_refresh",
    schedule="@hourly",
    max_active_runs=1,  # an hour's run waits for the one before it
    catchup=False,
    tags=["trainyard", "fraud"],
    defaults={
        "source": "s3://my-bucket/transactions/",
        "data_format": "csv",
        "model": "mlp",
        "target_column": "is_fraud",
        "ignore_columns": ["transaction_id"],
        "max_steps": 2000,
        "instance_type": "ml.m5.2xlarge",
        "instance_count": 1,
        "use_spot_instances": True,
        "max_run_s": 1800,
        "budget_usd": 8,
        "model_package_group": "fraud",
    },
)
