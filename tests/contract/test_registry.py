from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


@pytest.fixture
def group(endpoint: Endpoint) -> Iterator[str]:
    """The name of an empty group, removed in the end with what it holds then."""
    name = endpoint.name("group")
    endpoint.sagemaker.create_model_package_group(ModelPackageGroupName=name)
    yield name
    for package in versions(endpoint, name):
        endpoint.sagemaker.delete_model_package(ModelPackageName=package["ModelPackageArn"])
    endpoint.sagemaker.delete_model_package_group(ModelPackageGroupName=name)


def versions(endpoint: Endpoint, group: str, **query: Any) -> list[dict[str, Any]]:
    pages = endpoint.sagemaker.get_paginator("list_model_packages")
    return [
        package
        for page in pages.paginate(ModelPackageGroupName=group, **query)
        for package in page["ModelPackageSummaryList"]
    ]


def specification(endpoint: Endpoint) -> dict[str, Any]:
    model = {"Image": endpoint.image, "ModelDataUrl": endpoint.put("model/model.tar.gz")}
    return {
        "Containers": [model],
        "SupportedContentTypes": ["application/json"],
        "SupportedResponseMIMETypes": ["application/json"],
    }


def register(endpoint: Endpoint, group: str, **members: Any) -> str:
    answer = endpoint.sagemaker.create_model_package(
        ModelPackageGroupName=group, InferenceSpecification=specification(endpoint), **members
    )
    return str(answer["ModelPackageArn"])


def describe(endpoint: Endpoint, arn: str) -> dict[str, Any]:
    return dict(endpoint.sagemaker.describe_model_package(ModelPackageName=arn))


def test_group_is_described_and_listed(endpoint: Endpoint, group: str) -> None:
    described = endpoint.sagemaker.describe_model_package_group(ModelPackageGroupName=group)
    assert described["ModelPackageGroupStatus"] == "Completed"
    found = endpoint.sagemaker.list_model_package_groups(NameContains=group)
    names = [each["ModelPackageGroupName"] for each in found["ModelPackageGroupSummaryList"]]
    assert names == [group]


def test_group_name_can_be_used_once(endpoint: Endpoint, group: str) -> None:
    with pytest.raises(ClientError, match="already exists") as caught:
        endpoint.sagemaker.create_model_package_group(ModelPackageGroupName=group)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_versions_count_up_and_wait_for_approval(endpoint: Endpoint, group: str) -> None:
    arns = [register(endpoint, group) for _ in range(3)]
    assert [arn.rpartition("/")[2] for arn in arns] == ["1", "2", "3"]
    described = describe(endpoint, arns[1])
    assert described["ModelPackageVersion"] == 2
    assert described["ModelApprovalStatus"] == "PendingManualApproval"
    assert described["ModelPackageStatus"] == "Completed"


def test_version_of_a_deleted_package_is_not_used_again(endpoint: Endpoint, group: str) -> None:
    arn = register(endpoint, group)
    endpoint.sagemaker.delete_model_package(ModelPackageName=arn)
    with pytest.raises(ClientError, match="does not exist"):
        describe(endpoint, arn)
    assert register(endpoint, group).endswith("/2")


def test_repeated_client_token_finds_the_package_it_made(endpoint: Endpoint, group: str) -> None:
    token = str(uuid.uuid4())
    first = register(endpoint, group, ClientToken=token)
    assert register(endpoint, group, ClientToken=token) == first
    assert len(versions(endpoint, group)) == 1


def test_metrics_and_metadata_are_kept(endpoint: Endpoint, group: str) -> None:
    metrics = {
        "ModelQuality": {
            "Statistics": {"ContentType": "application/json", "S3Uri": endpoint.uri("evaluation")}
        }
    }
    arn = register(
        endpoint,
        group,
        ModelMetrics=metrics,
        CustomerMetadataProperties={"data": "abc"},
        ModelPackageDescription="a description",
    )
    described = describe(endpoint, arn)
    assert described["ModelMetrics"] == metrics
    assert described["CustomerMetadataProperties"] == {"data": "abc"}
    assert described["ModelPackageDescription"] == "a description"


def test_approval_is_updated_and_filtered_by(endpoint: Endpoint, group: str) -> None:
    first, second = register(endpoint, group), register(endpoint, group)
    endpoint.sagemaker.update_model_package(
        ModelPackageArn=second, ModelApprovalStatus="Approved", ApprovalDescription="looks good"
    )
    assert describe(endpoint, second)["ApprovalDescription"] == "looks good"
    approved = versions(endpoint, group, ModelApprovalStatus="Approved")
    assert [each["ModelPackageArn"] for each in approved] == [second]
    waiting = versions(endpoint, group, ModelApprovalStatus="PendingManualApproval")
    assert [each["ModelPackageArn"] for each in waiting] == [first]


def test_metadata_is_merged_and_removed(endpoint: Endpoint, group: str) -> None:
    arn = register(endpoint, group, CustomerMetadataProperties={"a": "1", "b": "2"})
    endpoint.sagemaker.update_model_package(
        ModelPackageArn=arn,
        CustomerMetadataProperties={"b": "3", "c": "4"},
        CustomerMetadataPropertiesToRemove=["a"],
    )
    assert describe(endpoint, arn)["CustomerMetadataProperties"] == {"b": "3", "c": "4"}


@pytest.mark.parametrize("size", [1, 2, 100])
def test_pages_hold_every_version_once(endpoint: Endpoint, group: str, size: int) -> None:
    arns = [register(endpoint, group) for _ in range(3)]
    found = versions(endpoint, group, SortOrder="Descending", PaginationConfig={"PageSize": size})
    assert [each["ModelPackageArn"] for each in found] == arns[::-1]


def test_an_address_becomes_the_source_by_an_update_only(endpoint: Endpoint, group: str) -> None:
    uri = "s3://bucket/model.tar.gz"
    with pytest.raises(ClientError, match="SourceUri must be the ARN"):
        endpoint.sagemaker.create_model_package(ModelPackageGroupName=group, SourceUri=uri)

    made = endpoint.sagemaker.create_model_package(ModelPackageGroupName=group)
    arn = made["ModelPackageArn"]
    endpoint.sagemaker.update_model_package(ModelPackageArn=arn, SourceUri=uri)
    assert endpoint.sagemaker.describe_model_package(ModelPackageName=arn)["SourceUri"] == uri


def test_batch_describe_tells_found_from_missing(endpoint: Endpoint, group: str) -> None:
    arn = register(endpoint, group)
    missing = arn.rpartition("/")[0] + "/99"
    answer = endpoint.sagemaker.batch_describe_model_package(ModelPackageArnList=[arn, missing])
    assert set(answer["ModelPackageSummaries"]) == {arn}
    assert set(answer["BatchDescribeModelPackageErrorMap"]) == {missing}


def test_group_with_packages_is_not_deleted(endpoint: Endpoint, group: str) -> None:
    register(endpoint, group)
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.delete_model_package_group(ModelPackageGroupName=group)
    assert caught.value.response["Error"]["Code"] == "ConflictException"


def test_package_of_an_unknown_group_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(ClientError, match="does not exist") as caught:
        register(endpoint, endpoint.name("nobody"))
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_group_can_be_tagged(endpoint: Endpoint, group: str) -> None:
    described = endpoint.sagemaker.describe_model_package_group(ModelPackageGroupName=group)
    arn = described["ModelPackageGroupArn"]
    endpoint.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "rail"}])
    tags = endpoint.sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "team", "Value": "rail"}]


def test_package_of_an_image_that_is_not_there_is_refused(endpoint: Endpoint, group: str) -> None:
    given = specification(endpoint)
    given["Containers"][0]["Image"] = (
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.10.0-gpu-py313"
    )
    with pytest.raises(ClientError, match=r"Requested image .*2\.10\.0-gpu-py313.* not found"):
        endpoint.sagemaker.create_model_package(
            ModelPackageGroupName=group, InferenceSpecification=given
        )


def test_package_of_an_image_that_only_aws_runs_is_registered(
    endpoint: Endpoint, group: str
) -> None:
    given = specification(endpoint)
    given["Containers"][0]["Image"] = (
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/mxnet-inference:1.9.0-cpu-py38"
    )
    arn = endpoint.sagemaker.create_model_package(
        ModelPackageGroupName=group, InferenceSpecification=given
    )["ModelPackageArn"]
    assert describe(endpoint, arn)["InferenceSpecification"] == given


def card(content: Any, status: str = "Draft") -> dict[str, str]:
    text = content if isinstance(content, str) else json.dumps(content)
    return {"ModelCardContent": text, "ModelCardStatus": status}


def test_model_card_is_kept_and_replaced(endpoint: Endpoint, group: str) -> None:
    first = card({"intended_uses": {"purpose_of_model": "tests", "risk_rating": "Low"}})
    arn = register(endpoint, group, ModelCard=first)
    assert describe(endpoint, arn)["ModelCard"] == first

    other = card({"model_overview": {"model_creator": "team"}}, "PendingReview")
    endpoint.sagemaker.update_model_package(ModelPackageArn=arn, ModelCard=other)
    assert describe(endpoint, arn)["ModelCard"] == other


def test_model_card_may_have_more_members_if_the_schema_leaves_them_open(
    endpoint: Endpoint, group: str
) -> None:
    objective = {"function": {"function": "Minimize"}, "unit": "nats"}
    groups = [{"name": "test", "metric_data": [], "rows": 3}]
    given = card(
        {
            "training_details": {"objective_function": objective},
            "evaluation_details": [{"name": "a", "metric_groups": groups}],
        }
    )

    arn = register(endpoint, group, ModelCard=given)

    assert describe(endpoint, arn)["ModelCard"] == given


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        '{"training_details": {"training_job_details": {"training_metrics": [NaN]}}}',
        {"model_overview": {"model_name": "a card of CreateModelCard has a name"}},
        {"intended_uses": {"risk_rating": "Extreme"}},
        {"intended_uses": {"purpose_of_model": "x" * 2049}},
        {"training_details": {"training_job_details": {"hyper_parameters": [{"name": "a"}]}}},
        {
            "training_details": {
                "training_job_details": {"training_metrics": [{"name": "a", "value": "1"}]}
            }
        },
        {"evaluation_details": [{"datasets": []}]},
        {"evaluation_details": [{"name": "a", "metadata": {"rows": 3}}]},
    ],
    ids=["text", "nan", "member", "choice", "long", "missing", "type", "name", "metadata"],
)
def test_model_card_outside_of_the_schema_is_refused(
    endpoint: Endpoint, group: str, content: Any
) -> None:
    with pytest.raises(ClientError) as caught:
        register(endpoint, group, ModelCard=card(content))
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_archived_model_card_is_not_changed(endpoint: Endpoint, group: str) -> None:
    arn = register(endpoint, group, ModelCard=card({}, "Archived"))
    with pytest.raises(ClientError, match="Model Card is in Archived state"):
        endpoint.sagemaker.update_model_package(ModelPackageArn=arn, ModelCard=card({}))
