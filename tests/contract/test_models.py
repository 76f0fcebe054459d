"""Models and endpoint configurations: descriptions that are checked, stored and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def request_of(endpoint: Endpoint, **container: Any) -> dict[str, Any]:
    data = container.pop("ModelDataUrl", None) or endpoint.put("model/model.tar.gz")
    return {
        "ModelName": endpoint.name("model"),
        "ExecutionRoleArn": endpoint.role_arn,
        "PrimaryContainer": {"Image": endpoint.image, "ModelDataUrl": data, **container},
    }


@pytest.fixture
def model(endpoint: Endpoint) -> Iterator[str]:
    """The name of a model, removed in the end."""
    request = request_of(endpoint)
    endpoint.sagemaker.create_model(**request, Tags=[{"Key": "team", "Value": "a"}])
    yield request["ModelName"]
    endpoint.sagemaker.delete_model(ModelName=request["ModelName"])


def refused(call: Any, **request: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**request)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return str(caught.value.response["Error"]["Message"])


def test_a_model_is_described_listed_and_tagged(endpoint: Endpoint, model: str) -> None:
    described = endpoint.sagemaker.describe_model(ModelName=model)
    listed = endpoint.sagemaker.list_models(NameContains=model)["Models"]
    tags = endpoint.sagemaker.list_tags(ResourceArn=described["ModelArn"])["Tags"]

    assert described["PrimaryContainer"]["Image"] == endpoint.image
    assert described["EnableNetworkIsolation"] is False
    assert [each["ModelArn"] for each in listed] == [described["ModelArn"]]
    assert tags == [{"Key": "team", "Value": "a"}]


def test_members_that_were_not_given_are_left_out(endpoint: Endpoint, model: str) -> None:
    described = endpoint.sagemaker.describe_model(ModelName=model)
    assert set(described) - {"ResponseMetadata", "DeploymentRecommendation"} == {
        "ModelName",
        "ModelArn",
        "PrimaryContainer",
        "ExecutionRoleArn",
        "CreationTime",
        "EnableNetworkIsolation",
    }


def test_a_name_is_taken_once(endpoint: Endpoint, model: str) -> None:
    again = {**request_of(endpoint), "ModelName": model}
    message = refused(endpoint.sagemaker.create_model, **again)
    assert message.startswith("Cannot create already existing model")


def test_model_data_must_be_there(endpoint: Endpoint) -> None:
    request = request_of(endpoint, ModelDataUrl=endpoint.uri("no/model.tar.gz"))
    message = refused(endpoint.sagemaker.create_model, **request)
    assert message.startswith("Could not find model data at s3://")


@pytest.mark.parametrize(
    ("repository", "is_published"),
    [("linear-learner", True), ("linear-lerner", False)],
    ids=["published", "unknown"],
)
def test_an_image_must_be_published_but_need_not_run_here(
    endpoint: Endpoint, repository: str, is_published: bool
) -> None:
    image = f"382416733822.dkr.ecr.us-east-1.amazonaws.com/{repository}:1"
    request = request_of(endpoint, Image=image)
    if not is_published:
        message = refused(endpoint.sagemaker.create_model, **request)
        assert message.startswith(f"Requested image {image} not found")
        return

    endpoint.sagemaker.create_model(**request)
    described = endpoint.sagemaker.describe_model(ModelName=request["ModelName"])
    endpoint.sagemaker.delete_model(ModelName=request["ModelName"])
    assert described["PrimaryContainer"]["Image"] == image


def test_a_deleted_model_is_not_found(endpoint: Endpoint) -> None:
    request = request_of(endpoint)
    endpoint.sagemaker.create_model(**request)
    endpoint.sagemaker.delete_model(ModelName=request["ModelName"])
    for call in (endpoint.sagemaker.describe_model, endpoint.sagemaker.delete_model):
        assert "Could not find model" in refused(call, ModelName=request["ModelName"])


def test_an_endpoint_configuration_names_models_that_are_there(
    endpoint: Endpoint, model: str
) -> None:
    sagemaker, name = endpoint.sagemaker, endpoint.name("config")
    variant = {"VariantName": "all", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    absent = {**variant, "ModelName": endpoint.name("absent")}
    request = {"EndpointConfigName": name, "ProductionVariants": [{**variant, "ModelName": model}]}

    message = refused(
        sagemaker.create_endpoint_config, **{**request, "ProductionVariants": [absent]}
    )
    sagemaker.create_endpoint_config(**request)
    described = sagemaker.describe_endpoint_config(EndpointConfigName=name)
    listed = sagemaker.list_endpoint_configs(NameContains=name)["EndpointConfigs"]
    again = refused(sagemaker.create_endpoint_config, **request)
    sagemaker.delete_endpoint_config(EndpointConfigName=name)

    assert "Could not find model" in message
    assert described["ProductionVariants"][0]["ModelName"] == model
    assert "DataCaptureConfig" not in described
    assert [each["EndpointConfigName"] for each in listed] == [name]
    assert "already existing endpoint configuration" in again
    gone = refused(sagemaker.describe_endpoint_config, EndpointConfigName=name)
    assert "Could not find endpoint configuration" in gone


def test_an_endpoint_that_does_not_exist_is_not_found(endpoint: Endpoint) -> None:
    name = endpoint.name("endpoint")
    listed = endpoint.sagemaker.list_endpoints(NameContains=name)["Endpoints"]
    assert listed == []
    for call in (endpoint.sagemaker.describe_endpoint, endpoint.sagemaker.delete_endpoint):
        assert "Could not find endpoint" in refused(call, EndpointName=name)
