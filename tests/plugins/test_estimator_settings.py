"""An estimator's settings make the run whose training job is that estimator's."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.script_conf import ScriptConf
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.tasks.own_script.jobs import script_training_spec
from trainyard_airflow.tasks.own_script.pipeline import estimator_defaults, script_pipeline
from trainyard_airflow.tasks.shared.run_paths import RunPaths

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312"
ESTIMATOR: dict[str, Any] = {
    "entry_point": "train.py",
    "source_dir": "dags/mine",
    "image_uri": IMAGE,
    "instance_type": "ml.g5.2xlarge",
    "instance_count": 2,
    "use_spot_instances": True,
    "max_run": 3600,
    "max_wait": 7200,
    "volume_size": 80,
    "hyperparameters": {"epochs": 3, "lr": 0.1},
    "distribution": {"torch_distributed": {"enabled": True}},
    "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    "environment": {"NCCL_DEBUG": "INFO"},
    "input_mode": "FastFile",
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
}
PATHS = RunPaths(bucket="bucket", prefix="p", dag_id="d", run_id="r")
ROLE = "arn:aws:iam::111122223333:role/Training"


def request_of(spec: TrainingJobSpec) -> dict[str, Any]:
    code = "s3://bucket/code/sourcedir.tar.gz"
    return render_training_job(spec, name="job", region="us-east-1", code_s3_uri=code)


def test_the_training_of_the_run_is_the_estimators() -> None:
    conf = ScriptConf.from_mapping(estimator_defaults(ESTIMATOR))
    run = script_training_spec(conf, paths=PATHS, role=ROLE, task_id="train")
    places = {
        name: getattr(run, name) for name in ("output_path", "code_location", "checkpoint_s3_uri")
    }

    own = TrainingJobSpec.from_mapping(
        {
            **ESTIMATOR,
            **places,
            "role": ROLE,
            "forward_sigterm": True,
            "max_retry_attempts": conf.max_retry_attempts,
        }
    )

    assert request_of(run) == request_of(own)


def test_a_dag_takes_them_and_its_own_arguments_come_first() -> None:
    dag = script_pipeline(
        dag_id="by_estimator", estimator=ESTIMATOR, instance_count=4, register_when="loss < 1"
    )

    assert dag.params["instance_count"] == 4
    assert dag.params["max_run_s"] == 3600
    assert dag.params["metric_definitions"] == [{"name": "loss", "regex": "loss=([0-9.]+)"}]


def test_what_the_run_makes_itself_is_an_error_with_the_place_to_set_it() -> None:
    wrong = {**ESTIMATOR, "output_path": "s3://mine/out", "base_job_name": "mine"}
    with pytest.raises(SpecError) as raised:
        script_pipeline(dag_id="by_estimator", estimator=wrong)

    told = str(raised.value)
    assert "estimator.output_path: is set by the run itself; got s3://mine/out" in told
    assert "set bucket and prefix" in told
    assert "estimator.base_job_name" in told


def test_an_unknown_setting_is_an_error_of_the_pipeline() -> None:
    with pytest.raises(SpecError, match="is not a field of the run"):
        script_pipeline(dag_id="by_estimator", estimator={**ESTIMATOR, "instance_cuont": 2})
