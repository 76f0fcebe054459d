"""An example of Trainyard: your training script as a SageMaker training job. A template to edit."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.shared.known_params import reject_unknown_params

AWS_CONN_ID = "aws_default"  # the connection of all tasks
SCRIPTS = Path(__file__).parent / "SCRIPTS"

with DAG(
    dag_id="trainyard_example",
    schedule=None,
    catchup=False,
    params={"max_steps": Param(200, type="integer", minimum=1)},
    tags=["trainyard"],
) as dag:
    TrainingJobOperator(
        task_id="train",
        spec={
            "entry_point": "train.py",
            "source_dir": str(SCRIPTS),
            "hyperparameters": {"max_steps": "{{ params.max_steps }}"},
            "distribution": {"torch_distributed": {"enabled": True}},
            "instance_type": "ml.m5.xlarge",  # "ml.g5.12xlarge": one rank on each of its four GPUs
            "instance_count": 2,
            "use_spot_instances": True,  # with checkpoints in the connection's bucket
            "max_run": 3600,
            "max_wait": 7200,
        },
        aws_conn_id=AWS_CONN_ID,
        pre_execute=reject_unknown_params,  # a misspelt key of a run's conf is an error
        retries=2,
    )
