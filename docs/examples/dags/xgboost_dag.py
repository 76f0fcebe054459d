"""AWS's built-in XGBoost on two instances, each with half of the files, on spot; the model is registered."""

from __future__ import annotations

from airflow.sdk import DAG

from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.shared.assets import MODEL_ASSET

DATA = "s3://my-bucket/table"
CSV = {"content_type": "text/csv"}

with DAG("xgboost_built_in", schedule=None, params={"data": DATA}):
    train = TrainingJobOperator(
        task_id="train",
        spec={
            "image_uri": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
            "hyperparameters": {"num_round": 100, "objective": "reg:squarederror", "max_depth": 4},
            "inputs": {
                "train": {
                    **CSV,
                    "s3_data": "{{ params.data }}/train/",
                    "distribution": "ShardedByS3Key",
                },
                "validation": {**CSV, "s3_data": "{{ params.data }}/validation/"},
            },
            "instance_type": "ml.m5.xlarge",
            "instance_count": 2,
            "use_spot_instances": True,
            "max_run": 3600,
            "max_wait": 7200,
        },
        retries=3,
    )
    register = RegisterModelOperator(
        task_id="register",
        version={
            "group": "xgboost",
            "model_artifact": "{{ ti.xcom_pull(task_ids='train')['model_artifact'] }}",
            "source": "{{ ti.xcom_pull(task_ids='train')['job_name'] }}",
        },
        asset=MODEL_ASSET,
    )
    train >> register
