from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def queue(endpoint: Endpoint) -> Iterator[str]:
    """The URL of a queue that gets all events of SageMaker."""
    sqs, events = endpoint.client("sqs"), endpoint.client("events")
    name = endpoint.name("events")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.sagemaker"]}))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    yield url
    events.remove_targets(Rule=name, Ids=["queue"])
    events.delete_rule(Name=name)
    sqs.delete_queue(QueueUrl=url)


def collect(
    endpoint: Endpoint, url: str, name: str, last: str, status: str
) -> list[dict[str, Any]]:
    """Return the details of a job's events up to the one with the last status."""
    seen: list[dict[str, Any]] = []

    def receive() -> list[dict[str, Any]]:
        answer = endpoint.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            event = json.loads(message["Body"])
            endpoint.client("sqs").delete_message(
                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
            )
            if name in event["resources"][0]:
                seen.append(event)
        return seen

    wait_until(
        receive,
        lambda events: any(each["detail"][status] == last for each in events),
        clock=endpoint.clock,
        what=f"event {last} of {name}",
    )
    return seen


def test_every_change_of_a_training_job_is_an_event(endpoint: Endpoint, queue: str) -> None:
    name = endpoint.run(endpoint.training_request())["TrainingJobName"]
    events = collect(endpoint, queue, name, "Completed", "TrainingJobStatus")
    assert {each["detail-type"] for each in events} == {"SageMaker Training Job State Change"}
    seen = [each["detail"]["SecondaryStatus"] for each in events]
    assert seen == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert events[-1]["detail"]["TrainingJobName"] == name


def test_every_change_of_a_processing_job_is_an_event(endpoint: Endpoint, queue: str) -> None:
    described = endpoint.run(endpoint.processing_request())
    name = described["ProcessingJobName"]
    events = collect(endpoint, queue, name, "Completed", "ProcessingJobStatus")
    assert {each["detail-type"] for each in events} == {"SageMaker Processing Job State Change"}
    assert [each["detail"]["ProcessingJobStatus"] for each in events] == ["InProgress", "Completed"]
