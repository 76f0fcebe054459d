"""A rule's messages go through the engine's SNS: to the address that its action names, and to the topic."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.job import Job
from sagemaker_engine.jobs.rule_actions import TOPIC, act, parsed_actions
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


@pytest.fixture
def job(engine: RunningEngine, tmp_path: Path) -> Iterator[Job]:
    """A job of the engine's account that is not stored and not run."""
    settings = EngineSettings(root=tmp_path, endpoint_url=engine.endpoint_url)
    store = JobStore(settings.database_path)
    yield Job(
        kind=ResourceKind.TRAINING,
        name="watched",
        arn=f"arn:aws:sagemaker:{engine.region}:123456789012:training-job/watched",
        request={},
        settings=settings,
        store=store,
        objects=ObjectStore(tmp_path / "s3"),
        folder=tmp_path,
        created_at=time.time(),
    )
    store.close()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (r'{"name": "email", "endpoint": "a@b.com"}', "a@b.com"),
        (r"{\"name\": \"email\", \"endpoint\": \"a@b.com\"}", "a@b.com"),
        (r'{"name": "email", "endpoint": "\"A\" <a@b.com>"}', '"A" <a@b.com>'),
    ],
    ids=["JSON", "escaped for a shell", "escaped in JSON"],
)
def test_an_action_is_read_as_json_or_as_the_sdk_escapes_it(text: str, endpoint: str) -> None:
    (action,) = parsed_actions(text) or []

    assert action["endpoint"] == endpoint


@pytest.mark.parametrize(
    ("protocol", "address"), [("email", "someone@example.com"), ("sms", "+15555550100")]
)
def test_an_action_subscribes_its_address_and_publishes_to_the_topic(
    engine: RunningEngine, job: Job, protocol: str, address: str
) -> None:
    sns, sqs = engine.client("sns"), engine.client("sqs")
    topic = sns.create_topic(Name=TOPIC)["TopicArn"]
    queue = sqs.create_queue(QueueName=f"messages-{protocol}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
    action = json.dumps([{"name": protocol, "endpoint": address}])

    for sending in act(
        job,
        {"RuleParameters": {"action_json": action}},
        {"name": "NonFinite", "details": "NaN in the loss at step 5"},
    ):
        sending.join(EVENT_LIMIT_S)

    found = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert (protocol, address) in {(each["Protocol"], each["Endpoint"]) for each in found}
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    assert (
        json.loads(message["Body"])["Message"]
        == "Training job watched: rule NonFinite fired. NaN in the loss at step 5"
    )
