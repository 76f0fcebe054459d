"""DAGs that run the same training job by the provider's operator and by ours, each in the worker and deferred.

Twelve DAGs of one task, `<operator>_<mode>_<kind>`; the job comes with the run's conf: `request` for the provider's
operator, `spec` for ours. Both have two retries.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator
from airflow.sdk import DAG, BaseOperator

from trainyard_airflow.operators.training_job import TrainingJobOperator

EXECUTION_TIMEOUT = timedelta(seconds=30)
NEVER = 100_000
# The provider polls 60 times by default, 30 seconds apart: half an hour. Here it polls 60 times, one second apart.
ATTEMPTS_OF = {"plain": NEVER, "timeout": NEVER, "limit": None}


def operator(name: str, mode: str, kind: str) -> BaseOperator:
    """Return the one task of a DAG."""
    both: dict[str, Any] = {
        "task_id": "train",
        "deferrable": mode == "deferred",
        "retries": 2,
        "retry_delay": timedelta(seconds=5),
        "execution_timeout": EXECUTION_TIMEOUT if kind == "timeout" else None,
    }
    if name == "ours":
        return TrainingJobOperator(spec="{{ dag_run.conf['spec'] }}", poll_interval_s=1.0, **both)
    return SageMakerTrainingOperator(
        config="{{ dag_run.conf['request'] }}",
        check_interval=1,
        max_attempts=ATTEMPTS_OF[kind],
        **both,
    )


for name in ("stock", "ours"):
    for mode in ("worker", "deferred"):
        for kind in ATTEMPTS_OF:
            dag_id = f"{name}_{mode}_{kind}"
            with DAG(
                dag_id=dag_id, schedule=None, render_template_as_native_obj=True, catchup=False
            ) as dag:
                operator(name, mode, kind)
            globals()[dag_id] = dag
