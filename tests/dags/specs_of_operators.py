"""A user's DAG file with a spec of each kind of job; its parse time and imports are measured."""

from __future__ import annotations

from airflow.sdk import DAG

from trainyard_airflow.operators.automl_tabular import AutoMLTabularOperator
from trainyard_airflow.operators.processing_job import ProcessingJobOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator

TRAINING = {
    "entry_point": "train.py",
    "source_dir": "dags/my_model",
    "distribution": {"torch_distributed": {"enabled": True}},
    "hyperparameters": {"epochs": "{{ params.epochs }}"},
    "inputs": {"train": "s3://my-bucket/{{ ds }}/"},
    "instance_type": "ml.g5.12xlarge",
    "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
}

with DAG("specs_of_operators", schedule=None, params={"epochs": 3}):
    TrainingJobOperator(task_id="train", spec=TRAINING)
    ProcessingJobOperator(
        task_id="evaluate", spec={"entry_point": "job.py", "instance_type": "ml.m5.large"}
    )
    TuneHyperparametersOperator(
        task_id="tune",
        spec={
            "training": TRAINING,
            "hyperparameter_ranges": {"lr": {"type": "continuous", "min_value": 0, "max_value": 1}},
            "objective_metric_name": "loss",
            "objective_type": "Minimize",
            "max_jobs": 4,
        },
    )
    AutoMLTabularOperator(task_id="search", spec={"train": "s3://b/table", "target": "label"})
