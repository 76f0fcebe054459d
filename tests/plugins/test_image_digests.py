"""Digests of images, asked of the engine's registry; without an answer a run goes on and names the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine_access import EngineAccess
from tests.plugins.conftest import IMAGE
from trainyard.permissions.policies import Account, airflow_policy, execution_policy
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.image_digests import image_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = f"sha256:{'1' * 64}"
REPOSITORY = IMAGE.partition(":")[0]


@pytest.fixture
def access(engine: Any) -> Iterator[EngineAccess]:
    """The engine's permissions; everything is allowed again at the end."""
    made = EngineAccess(engine)
    yield made
    made.clear()


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> AwsClients:
    """Clients of an endpoint that nobody listens at."""
    extra = {"region_name": "us-east-1", "endpoint_url": "http://127.0.0.1:9"}
    credentials = {"login": "test-login", "password": "test-password"}
    given = json.dumps({"conn_type": "aws", **credentials, "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    return AwsClients(ConnectionArguments())


def clients() -> AwsClients:
    return AwsClients(ConnectionArguments())


@pytest.mark.engine
def test_the_digest_of_a_tag_is_the_registrys(aws_connection: Any) -> None:
    _, _, tag = IMAGE.rpartition(":")
    call = {"repositoryName": "pytorch-training", "imageIds": [{"imageTag": tag}]}
    answer = aws_connection.client("ecr").batch_get_image(registryId=IMAGE[:12], **call)

    found = image_digest(clients(), IMAGE)

    assert found.value == answer["images"][0]["imageId"]["imageDigest"]
    assert found.facts() == {"image_digest": found.value}


def test_an_image_that_is_named_by_its_digest_needs_no_question(unreachable: AwsClients) -> None:
    assert image_digest(unreachable, f"{REPOSITORY}@{NAMED}").value == NAMED
    assert image_digest(unreachable, f"{REPOSITORY}:tag@{NAMED}").value == NAMED


@pytest.mark.engine
@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (f"{REPOSITORY}:9.9-cpu-py399", "ImageNotFound"),
        (f"{REPOSITORY}-of-nobody:1", "RepositoryNotFoundException"),
        ("registry.example.com:5000/team/train:1", "not in an Elastic Container Registry"),
    ],
    ids=["no such tag", "no such repository", "another registry"],
)
def test_an_image_that_the_registry_lacks_has_no_digest(
    aws_connection: Any, uri: str, reason: str
) -> None:
    found = image_digest(clients(), uri)

    assert found.value is None
    assert reason in found.facts()["image_digest_unknown"]


@pytest.mark.engine
def test_a_missing_permission_is_the_reason_and_the_generated_policy_has_it(
    aws_connection: Any, access: EngineAccess
) -> None:
    account = Account(
        account=aws_connection.account,
        region=aws_connection.region,
        bucket=aws_connection.bucket,
        role_arn=aws_connection.role_arn,
    )
    whole = airflow_policy(account, ())
    access.put(airflow=whole, role=execution_policy(account))
    assert image_digest(clients(), IMAGE).value

    statements = [e for e in whole["Statement"] if "ecr:BatchGetImage" not in e["Action"]]
    access.put(airflow={**whole, "Statement": statements}, role=execution_policy(account))
    found = image_digest(clients(), IMAGE)

    assert found.value is None
    assert "ecr:BatchGetImage" in (found.why_unknown or "")
    assert "\n" not in (found.why_unknown or "")


def test_a_registry_that_does_not_answer_costs_seconds_and_fails_nothing(
    unreachable: AwsClients, caplog: pytest.LogCaptureFixture
) -> None:
    config = unreachable.impatient_client("ecr").meta.config
    assert (
        config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout) < 20
    )

    found = image_digest(unreachable, IMAGE)

    assert found.value is None
    assert "127.0.0.1:9" in (found.why_unknown or "")
    assert "digest" in caplog.text
