"""Model versions of runs: serving image, model card, and preflight's findings on them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from tests.plugins.test_task_specs import context
from trainyard.sagemaker_api.model_package import ModelVersion, render_model_package
from trainyard.sagemaker_api.serving import CODE
from trainyard.specs.fine_tune_conf import ENTRY_POINT, SOURCE_DIR
from trainyard.specs.script_conf import ScriptConf
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.own_script.task_specs import register_task_version
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState
from trainyard_airflow.tasks.shared.serving import serving_findings

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/serving:1"
TRAINED = {
    "job_name": "job",
    "arn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/job",
    "model_artifact": "s3://b/model.tar.gz",
    "image_uri": "image",
    "instance_type": "ml.m5.large",
    "instance_count": 2,
    "attempt": 1,
    "billable_seconds": 3600,
    "training_seconds": 3600,
    "final_metrics": {"train:loss": 0.5},
}


def script_conf(**params: Any) -> ScriptConf:
    return ScriptConf.from_mapping({"entry_point": "train.py", "source_dir": "mine", **params})


def script_version(evaluation: Any = None, **params: Any) -> ModelVersion:
    """Return the model version of an own script's run."""
    paths = RunPaths(bucket="b", prefix="p", dag_id="d", run_id="r")
    state = RunState(
        conf=script_conf(**params), paths=paths, role="role", region="us-east-1", plan={}
    )
    results = {"preflight": state.to_dict(), "train": TRAINED, "evaluate": evaluation}
    ti = SimpleNamespace(task_id="register", xcom_pull=lambda task_ids: results[task_ids])
    return register_task_version({"ti": ti}, None)  # type: ignore[arg-type]


def served(version: ModelVersion) -> dict[str, Any]:
    specification: dict[str, Any] = render_model_package(version)["InferenceSpecification"]
    return specification


def card_of(version: ModelVersion) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(
        render_model_package(version)["ModelCard"]["ModelCardContent"]
    )
    return card


def test_an_own_scripts_model_has_a_serving_image_if_the_conf_names_one() -> None:
    version = script_version(
        inference_image_uri=IMAGE,
        inference_entry_point="serve.py",
        inference_content_types=["text/csv"],
        inference_instance_types=["ml.m5.xlarge"],
    )

    (container,) = served(version)["Containers"]
    assert container["Image"] == IMAGE
    assert container["Environment"] == {**CODE, "SAGEMAKER_PROGRAM": "serve.py"}
    assert served(version)["SupportedContentTypes"] == ["text/csv"]
    assert served(version)["SupportedRealtimeInferenceInstanceTypes"] == ["ml.m5.xlarge"]
    assert "InferenceSpecification" not in render_model_package(script_version())


def test_the_images_own_handlers_need_no_variables() -> None:
    (container,) = served(script_version(inference_image_uri=IMAGE))["Containers"]

    assert "Environment" not in container


def test_a_fine_tuned_model_may_have_another_serving_image() -> None:
    script = {"source_dir": SOURCE_DIR, "entry_point": ENTRY_POINT}
    (default,) = served(script_version(**script))["Containers"]
    (other,) = served(script_version(**script, inference_image_uri=IMAGE))["Containers"]

    assert "huggingface-pytorch-inference" in default["Image"]
    assert other == {**default, "Image": IMAGE}


@pytest.mark.parametrize(
    ("strategy", "stage", "is_whole"),
    [
        ("ddp", 0, True),
        ("deepspeed", 1, True),
        ("deepspeed", 2, True),
        ("deepspeed", 3, False),
        ("fsdp", 0, False),
    ],
)
def test_a_model_that_was_fine_tuned_in_shards_has_no_instance_types(
    strategy: str, stage: int, *, is_whole: bool
) -> None:
    zero = {"ds_config": {"zero_optimization": {"stage": stage}}} if stage else {}
    version = script_version(
        source_dir=SOURCE_DIR,
        entry_point=ENTRY_POINT,
        hyperparameters={"strategy": strategy, **zero},
    )

    assert ("SupportedRealtimeInferenceInstanceTypes" in served(version)) is is_whole


def test_card_of_an_own_scripts_model() -> None:
    card = card_of(
        script_version(
            evaluation={"metrics": {"accuracy": 0.9}, "arn": "arn:evaluation"},
            inputs={"train": "s3://b/train/"},
            evaluation_inputs={"test": "s3://b/test/"},
            evaluation_entry_point="evaluate.py",
            hyperparameters={"lr": 0.1, "api_key": "very secret"},
            intended_uses="Only for tests.",
        )
    )

    job = card["training_details"]["training_job_details"]
    assert job["training_arn"] == TRAINED["arn"]
    assert job["training_datasets"] == ["s3://b/train/"]
    assert job["training_metrics"] == [{"name": "train:loss", "value": 0.5}]
    assert job["hyper_parameters"] == [
        {"name": "lr", "value": "0.1"},
        {"name": "api_key", "value": "***"},
    ]
    assert card["intended_uses"]["intended_uses"] == "Only for tests."
    (evaluation,) = card["evaluation_details"]
    assert evaluation["evaluation_job_arn"] == "arn:evaluation"
    assert evaluation["datasets"] == ["s3://b/test/"]
    details = card["additional_information"]["custom_details"]
    assert details["problem"] == "model of train.py in mine"
    assert details["instances"] == "2 x ml.m5.large"
    assert float(details["training_cost_usd"]) > 0


def test_card_of_a_run_with_shards_has_the_size_and_fingerprint_of_the_data() -> None:
    given = context(intended_uses="Tests.", num_layers=2)
    pulled = given["ti"].xcom_pull
    splits = {"train": {"num_rows": 90, "num_tokens": 1200}, "test": {"num_rows": 10}}
    results = {
        "train": TRAINED,
        "shard": {"dataset_uri": "s3://b/data", "fingerprint": "abc", "splits": splits},
        "evaluate": {"job_name": "evaluation"},
    }
    given["ti"].xcom_pull = lambda task_ids: results.get(task_ids) or pulled(task_ids)

    card = card_of(task_specs.register_task_version(given, None))

    training = card["training_details"]
    assert training["training_observations"] == (
        "train: 90 rows, 1200 tokens; test: 10 rows; data fingerprint abc"
    )
    assert "s3://b/data" in training["training_job_details"]["training_datasets"]
    names = {each["name"] for each in training["training_job_details"]["hyper_parameters"]}
    assert {"num_layers", "learning_rate"} <= names


@pytest.mark.engine
def test_preflight_checks_the_serving_image_and_types_of_an_own_script(aws_connection: Any) -> None:
    clients = AwsClients(ConnectionArguments())
    known = f"763104351884.dkr.ecr.{clients.region}.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
    good = script_conf(inference_image_uri=known, inference_instance_types=["ml.m5.large"])
    wrong = script_conf(
        inference_image_uri=known.replace("2.6.0", "9.9.9"),
        inference_instance_types=["ml.m5.large", "ml.m9.large"],
    )
    ours = script_conf(source_dir=SOURCE_DIR, entry_point=ENTRY_POINT)

    absent, types = serving_findings(clients, wrong)

    assert list(serving_findings(clients, good)) == []
    assert list(serving_findings(clients, ours)) == []
    assert list(serving_findings(clients, script_conf())) == []
    assert str(absent).startswith("inference_image_uri: does not exist in its registry")
    assert types.got == "ml.m9.large"
