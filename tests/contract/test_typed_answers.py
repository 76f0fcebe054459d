"""The SDK v3's typed resources take every Describe: it is stricter than botocore's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract import automl, tuning
from tests.contract.debugger import rule

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def typed(resource: str, answer: dict[str, Any], output: str) -> Any:
    """Return the answer as the SDK's resource.

    Raises:
        ValueError: The SDK refuses it.
    """
    from sagemaker.core import resources  # Takes seconds.
    from sagemaker.core.utils.code_injection.codec import transform

    return getattr(resources, resource)(**transform(answer, output))


def test_training_and_processing_jobs(endpoint: Endpoint) -> None:
    hook = {"S3OutputPath": endpoint.uri("debug")}
    plain = endpoint.run(endpoint.training_request())
    full = endpoint.run(
        endpoint.training_request(
            DebugHookConfig=hook,
            DebugRuleConfigurations=[rule("nan", "NonFinite")],
            CheckpointConfig={"S3Uri": endpoint.uri("checkpoints/")},
            HyperParameters={"a": "b"},
            Environment={"A": "B"},
        )
    )
    processing = endpoint.run(endpoint.processing_request())

    for each in (plain, full):
        job = typed("TrainingJob", each, "DescribeTrainingJobResponse")
        assert job.training_job_status == "Completed"
    job = typed("ProcessingJob", processing, "DescribeProcessingJobResponse")
    assert job.processing_job_status == "Completed"


def test_searches(endpoint: Endpoint) -> None:
    tuned = tuning.run(endpoint, tuning.request(endpoint))
    name = automl.start(endpoint, automl.request(endpoint))
    searched = automl.describe(endpoint, name)
    endpoint.sagemaker.stop_auto_ml_job(AutoMLJobName=name)

    job = typed("HyperParameterTuningJob", tuned, "DescribeHyperParameterTuningJobResponse")
    assert job.best_training_job.training_job_name
    job = typed("AutoMLJobV2", searched, "DescribeAutoMLJobV2Response")
    assert job.auto_ml_job_name == name


def test_registry(endpoint: Endpoint) -> None:
    client, name = endpoint.sagemaker, endpoint.name("typed")
    container = {"Image": endpoint.image, "ModelDataUrl": endpoint.put("model/model.tar.gz")}
    client.create_model(
        ModelName=name, ExecutionRoleArn=endpoint.role_arn, PrimaryContainer=container
    )
    variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.m5.large"}
    client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    client.create_model_package_group(ModelPackageGroupName=name)
    types = ["text/csv"]
    specification = {"Containers": [container]}
    specification |= {"SupportedContentTypes": types, "SupportedResponseMIMETypes": types}
    package = client.create_model_package(
        ModelPackageGroupName=name, InferenceSpecification=specification
    )["ModelPackageArn"]

    model = typed("Model", client.describe_model(ModelName=name), "DescribeModelOutput")
    config = client.describe_endpoint_config(EndpointConfigName=name)
    described = client.describe_model_package(ModelPackageName=package)
    group = client.describe_model_package_group(ModelPackageGroupName=name)

    assert model.primary_container.image == endpoint.image
    typed("EndpointConfig", config, "DescribeEndpointConfigOutput")
    typed("ModelPackage", described, "DescribeModelPackageOutput")
    typed("ModelPackageGroup", group, "DescribeModelPackageGroupOutput")
    client.delete_model_package(ModelPackageName=package)
    client.delete_model_package_group(ModelPackageGroupName=name)
    client.delete_endpoint_config(EndpointConfigName=name)
    client.delete_model(ModelName=name)
