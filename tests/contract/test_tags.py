from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


@pytest.fixture
def arn(endpoint: Endpoint) -> str:
    """The ARN of a finished job with the tags team=rail and stage=test."""
    tags = [{"Key": "team", "Value": "rail"}, {"Key": "stage", "Value": "test"}]
    return str(endpoint.run(endpoint.training_request(Tags=tags))["TrainingJobArn"])


def tags_of(endpoint: Endpoint, arn: str) -> dict[str, str]:
    pages = endpoint.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}


def test_tags_of_create_are_listed(endpoint: Endpoint, arn: str) -> None:
    assert tags_of(endpoint, arn) == {"team": "rail", "stage": "test"}


def test_added_tags_join_and_overwrite(endpoint: Endpoint, arn: str) -> None:
    added = [{"Key": "stage", "Value": "live"}, {"Key": "owner", "Value": "ann"}]
    endpoint.sagemaker.add_tags(ResourceArn=arn, Tags=added)
    assert tags_of(endpoint, arn) == {"team": "rail", "stage": "live", "owner": "ann"}


def test_deleted_tags_are_gone(endpoint: Endpoint, arn: str) -> None:
    endpoint.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team", "never-there"])
    assert tags_of(endpoint, arn) == {"stage": "test"}


def test_more_than_50_tags_are_refused(endpoint: Endpoint, arn: str) -> None:
    tags = [{"Key": f"key-{number}", "Value": "value"} for number in range(49)]
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.add_tags(ResourceArn=arn, Tags=tags)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert tags_of(endpoint, arn) == {"team": "rail", "stage": "test"}


def test_tags_of_nothing_are_an_error(endpoint: Endpoint, arn: str) -> None:
    with pytest.raises(ClientError):
        tags_of(endpoint, arn + "-nobody")
