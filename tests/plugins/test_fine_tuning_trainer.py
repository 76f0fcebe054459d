"""A trainer of SDK v3 that fine-tunes a model of the hub, as the spec of a serverless job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.plugins.test_training_job_operator import execute, operator
from tests.plugins.trainers import ROLE
from trainyard.errors import SpecError, TrainingRunError
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard_airflow.hooks.trainer_session import trainer_session
from trainyard_airflow.jobs.model_trainer import from_model_trainer, trainer_job
from trainyard_airflow.jobs.trainer_request import trainer_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RunningEngine
    from trainyard_airflow.hooks.aws_clients import AwsClients

pytestmark = [
    pytest.mark.engine,
    # The SDK leaves its clients' sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MODEL = "arn:aws:sagemaker:us-east-1:aws:hub-content/SageMakerPublicHub/Model/llama-tiny/1.0.0"
TRACKING = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/app-1"
GROUP = "fine-tuned"


@pytest.fixture
def data(engine: RunningEngine, s3: Any) -> str:
    """A data set in S3, whose existence the SDK checks."""
    s3.put_object(Bucket=engine.bucket, Key="chat/train.jsonl", Body=b"{}\n")
    return f"s3://{engine.bucket}/chat/train.jsonl"


@pytest.fixture
def group(sagemaker: Any) -> Iterator[str]:
    arn = sagemaker.create_model_package_group(ModelPackageGroupName=GROUP)
    yield arn["ModelPackageGroupArn"]
    sagemaker.delete_model_package_group(ModelPackageGroupName=GROUP)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's answer about the model; the engine has no hub."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")  # these modules create clients
    from sagemaker.train import dpo_trainer, sft_trainer
    from sagemaker.train.common import FineTuningOptions

    def options(*_: Any, **__: Any) -> tuple[Any, str, bool]:
        rate = {"type": "float", "default": 0.0002, "required": False}
        return FineTuningOptions({"learning_rate": rate}), MODEL, False

    for module in (sft_trainer, dpo_trainer):
        monkeypatch.setattr(module, "_get_fine_tuning_options_and_model_arn", options)


def trainer_of(kind: str, data: str, **arguments: Any) -> Callable[..., Any]:
    """Return the function that a DAG file would pass."""

    def trainer(sagemaker_session: Any) -> Any:
        from sagemaker import train

        return getattr(train, kind)(
            model="llama-tiny",
            sagemaker_session=sagemaker_session,
            role=ROLE,
            training_dataset=data,
            mlflow_resource_arn=TRACKING,
            accept_eula=True,
            **{"s3_output_path": data.rpartition("/")[0], **arguments},
        )

    return trainer


def by_key(tags: list[dict[str, str]]) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in tags}


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("kind", ["SFTTrainer", "DPOTrainer"])
def test_the_request_is_the_one_that_train_would_send(
    kind: str, data: str, group: str, clients: AwsClients
) -> None:
    from sagemaker.train.configs import StoppingCondition

    limit = StoppingCondition(max_runtime_in_seconds=7200)
    make = trainer_of(
        kind, data, model_package_group=GROUP, sequence_length="4K", stopping_condition=limit
    )

    sent = trainer_request(make(trainer_session(clients)), run_uri="s3://unused/run")
    job = trainer_job(
        from_model_trainer(make), clients=clients, context={}, run_uri="s3://unused/run"
    )
    rendered = render_training_job(job.spec, name="job", region="us-east-1")

    assert rendered.pop("TrainingJobName") == "job"
    assert by_key(rendered.pop("Tags")) == by_key(sent.pop("Tags"))
    assert rendered == sent
    assert sent["ServerlessJobConfig"] == {
        "BaseModelArn": MODEL,
        "AcceptEula": True,
        "JobType": "FineTuning",
        "CustomizationTechnique": kind.removesuffix("Trainer"),
        "Peft": "LORA",
        "SequenceLength": "4K",
    }
    assert sent["ModelPackageConfig"] == {"ModelPackageGroupArn": group}
    assert sent["HyperParameters"] == {"learning_rate": "0.0002"}


@pytest.mark.usefixtures("hub", "group")
def test_no_job_is_created_by_the_trainer(data: str, clients: AwsClients, sagemaker: Any) -> None:
    def names() -> set[str]:
        jobs = sagemaker.get_paginator("list_training_jobs").paginate()
        return {each["TrainingJobName"] for page in jobs for each in page["TrainingJobSummaries"]}

    before = names()
    make = trainer_of("SFTTrainer", data, model_package_group=GROUP)

    trainer_request(make(trainer_session(clients)), run_uri="s3://unused/run")

    assert names() == before


@pytest.mark.usefixtures("hub", "group")
def test_a_trainer_without_an_output_path_writes_below_the_run(
    data: str, clients: AwsClients
) -> None:
    make = trainer_of("SFTTrainer", data, model_package_group=GROUP, s3_output_path=None)
    run_uri = f"s3://{clients.bucket()}/trainyard/run"

    sent = trainer_request(make(trainer_session(clients)), run_uri=run_uri)

    assert sent["OutputDataConfig"] == {"S3OutputPath": f"{run_uri}/output"}


def test_the_sdks_imports_know_the_region(clients: AwsClients) -> None:
    """Its modules of the hub create clients while they are imported."""
    seen = []

    def trainer(sagemaker_session: Any) -> Any:
        seen.append((os.environ["AWS_DEFAULT_REGION"], sagemaker_session.boto_region_name))
        return "none"

    with pytest.raises(SpecError, match="returned no trainer"):
        trainer_job(
            from_model_trainer(trainer), clients=clients, context={}, run_uri="s3://unused/run"
        )

    assert seen == [(clients.region, clients.region)]
    assert "AWS_DEFAULT_REGION" not in os.environ


@pytest.mark.usefixtures("hub")
def test_a_cluster_of_hyperpod_is_rejected_before_it_trains(data: str, clients: AwsClients) -> None:
    from sagemaker.core.training.configs import HyperPodCompute

    compute = HyperPodCompute(cluster_name="team", instance_type="ml.p5.48xlarge", node_count=1)
    make = trainer_of("SFTTrainer", data, compute=compute)

    with pytest.raises(SpecError, match="does not create a training job; got HyperPodCompute"):
        trainer_request(make(trainer_session(clients)), run_uri="s3://unused/run")


def test_a_serverless_job_reaches_the_service_which_the_engine_is_not(
    aws_connection: Any, task: Any, data: str, group: str
) -> None:
    """The engine rejects the request by name; the steps before it work without an instance type."""
    spec = {
        "serverless_job_config": {
            "BaseModelArn": MODEL,
            "AcceptEula": True,
            "JobType": "FineTuning",
            "CustomizationTechnique": "SFT",
        },
        "model_package_config": {"ModelPackageGroupArn": group},
        "inputs": {"train": data},
    }

    with pytest.raises(TrainingRunError, match="is not supported by the local engine"):
        execute(operator(spec), task)
