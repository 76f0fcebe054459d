"""DAG that trains with a user's own script, from its data to a registered model; started manually or by REST."""

from __future__ import annotations

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline
from trainyard_airflow.tasks.shared import documentation

AWS_CONN_ID = "aws_default"  # the connection of all tasks

train_own_script = script_pipeline(
    dag_id="train_own_script",
    aws_conn_id=AWS_CONN_ID,
    dag_arguments={
        "dag_display_name": "Train your own script",
        "max_active_runs": 4,
        "tags": ["trainyard", "sagemaker", "distributed-training", "own-script"],
        "doc_md": documentation.OWN_SCRIPT,
    },
)
