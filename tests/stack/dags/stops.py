"""DAGs of one task whose job runs until it is stopped: waited for in the triggerer, or in the worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from trainyard_airflow.operators.training_job import TrainingJobOperator

# Process 1 of a container is not ended by a SIGTERM that it does not handle.
RUNS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
SPEC = {
    "image_uri": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312",
    "container_entry_point": ["python", "-c", RUNS],
    "instance_type": "ml.m5.large",
    "instance_count": 1,
    "max_run": 3600,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "timed": {"execution_timeout": timedelta(seconds=40)},
    "retried": {"retries": 1, "retry_delay": timedelta(seconds=1)},
    "doomed": {},
}


def one_job(dag_id: str, **arguments: Any) -> DAG:
    """Return a DAG whose only task waits for its job."""
    with DAG(dag_id=dag_id, schedule=None, catchup=False) as dag:
        TrainingJobOperator(task_id="train", spec=SPEC, poll_interval_s=1.0, **arguments)
    return dag


for kind, given in ARGUMENTS.items():
    for where in ("deferred", "worker"):
        made = one_job(f"stops_{where}_{kind}", deferrable=where == "deferred", **given)
        globals()[made.dag_id] = made
