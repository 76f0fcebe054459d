"""The tasks of a run work on what its conf says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from distributed_training.pipelines.run_paths import RunPaths
from distributed_training.pipelines.run_state import RunState
from distributed_training.pipelines.task_specs import evaluate_task_spec, shard_task_spec
from include.planning.run_plan import plan_run

ROLE = "arn:aws:iam::123456789012:role/Trainer"


def context(**params: Any) -> Any:
    """Return the context of a task of a run with these params."""
    plan = plan_run(params)
    paths = RunPaths(bucket="b", prefix="p", dag_id="d", run_id="r")
    state = RunState(
        conf=plan.conf, paths=paths, role=ROLE, region="us-east-1", plan=plan.to_dict()
    )
    results = {
        "preflight": state.to_dict(),
        "shard": {"dataset_uri": "s3://b/datasets/x"},
        "train": {"model_artifact": "s3://b/model.tar.gz", "image_uri": "image"},
    }
    return {"ti": SimpleNamespace(xcom_pull=lambda task_ids: results[task_ids])}


def test_shards_fit_the_loader_workers_and_columns_of_the_conf() -> None:
    conf = {
        "model": "mlp",
        "target_column": "y",
        "ignore_columns": ["id"],
        "category_columns": ["zip"],
        "hyperparameters": {"num_workers": 2},
    }
    settings = shard_task_spec(context(**conf), None).settings

    assert settings.num_workers == 2
    assert settings.num_readers == 4
    assert (settings.ignore_columns, settings.category_columns) == (("id",), ("zip",))


def test_evaluation_of_a_type_for_training_alone_runs_on_a_type_of_processing_jobs() -> None:
    spec = evaluate_task_spec(
        context(instance_type="ml.p4d.24xlarge", processes_per_instance=8, global_batch_size=128),
        None,
    )

    assert spec.instance_type == "ml.m5.xlarge"
