"""DAG that fine-tunes a language model, from chat data to a registered model; started manually or by REST."""

from __future__ import annotations

from trainyard_airflow.tasks.fine_tune.pipeline import fine_tune_pipeline
from trainyard_airflow.tasks.shared import documentation

AWS_CONN_ID = "aws_default"  # the connection of all tasks

fine_tune = fine_tune_pipeline(
    dag_id="fine_tune",
    aws_conn_id=AWS_CONN_ID,
    dag_arguments={
        "dag_display_name": "Fine-tune a language model",
        "max_active_runs": 4,
        "tags": ["trainyard", "sagemaker", "distributed-training", "fine-tuning"],
        "doc_md": documentation.FINE_TUNE,
    },
)
