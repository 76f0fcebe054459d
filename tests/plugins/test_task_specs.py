"""The tasks of a run work on what its conf says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from distributed_training.pipelines.run_paths import RunPaths
from distributed_training.pipelines.run_state import RunState
from distributed_training.pipelines.task_specs import (
    evaluate_task_spec,
    shard_task_spec,
    train_task_spec,
)
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
    ti = SimpleNamespace(task_id="train", xcom_pull=lambda task_ids: results[task_ids])
    return {"ti": ti}


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


def test_training_climbs_the_ladder_of_the_conf_within_its_budget() -> None:
    ladder = [
        {"instance_type": "ml.m5.large", "max_wait_s": 600},
        {"instance_type": "ml.m5.large", "use_spot_instances": False},
    ]
    spec = train_task_spec(
        context(capacity_ladder=ladder, heartbeat_timeout_s=90, budget_usd=2.0), None
    )

    assert [str(each) for each in spec.capacity_ladder] == [
        "ml.m5.large spot",
        "ml.m5.large on demand",
    ]
    assert (spec.instance_type, spec.instance_count, spec.heartbeat_timeout_s) == (None, 2, 90)
    assert spec.budget_usd == pytest.approx(2.0 - 0.115)


def test_training_without_a_ladder_runs_on_the_confs_own_instances() -> None:
    spec = train_task_spec(context(use_spot_instances=True), None)

    assert (spec.capacity_ladder, spec.instance_type) == ((), "ml.m5.large")
    assert (spec.use_spot_instances, spec.max_wait) == (True, 7200)
    assert spec.hyperparameters["checkpoint_interval"] == 0
    assert spec.hyperparameters["mean_time_to_interruption_s"] == 3600.0
