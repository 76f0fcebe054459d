from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

GROUP = "/aws/sagemaker/TrainingJobs"
NUM_LINES = 25


@pytest.fixture(scope="module")
def job(endpoint: Endpoint) -> str:
    """A finished job of two hosts; each printed its name and 25 numbered lines."""
    script = f"hostname; for i in $(seq {NUM_LINES}); do echo line $i; done"
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    request = endpoint.training_request(script, ResourceConfig=resources)
    return str(endpoint.run(request)["TrainingJobName"])


def streams(endpoint: Endpoint, job: str, **query: Any) -> list[str]:
    found = endpoint.client("logs").describe_log_streams(
        logGroupName=GROUP, logStreamNamePrefix=f"{job}/", **query
    )
    return [each["logStreamName"] for each in found["logStreams"]]


def read(endpoint: Endpoint, stream: str, **query: Any) -> dict[str, Any]:
    answer = endpoint.client("logs").get_log_events(
        logGroupName=GROUP, logStreamName=stream, **query
    )
    return dict(answer)


def numbered(events: list[dict[str, Any]]) -> list[str]:
    return [each["message"] for each in events if each["message"].startswith("line ")]


EXPECTED = [f"line {number}" for number in range(1, NUM_LINES + 1)]


def test_each_host_has_a_stream_named_after_job_and_host(endpoint: Endpoint, job: str) -> None:
    names = streams(endpoint, job)
    assert [name.rpartition("-")[0] for name in names] == [f"{job}/algo-1", f"{job}/algo-2"]


def test_group_is_listed(endpoint: Endpoint, job: str) -> None:
    groups = endpoint.client("logs").describe_log_groups(logGroupNamePrefix="/aws/sagemaker/T")
    assert [each["logGroupName"] for each in groups["logGroups"]] == [GROUP]


def test_stream_holds_what_its_host_printed(endpoint: Endpoint, job: str) -> None:
    for host, stream in zip(("algo-1", "algo-2"), streams(endpoint, job), strict=True):
        events = read(endpoint, stream, startFromHead=True)["events"]
        messages = [each["message"] for each in events]
        assert host in messages
        assert numbered(events) == EXPECTED


def test_events_are_in_the_order_of_their_times(endpoint: Endpoint, job: str) -> None:
    events = read(endpoint, streams(endpoint, job)[0], startFromHead=True)["events"]
    times = [each["timestamp"] for each in events]
    assert times == sorted(times)


def test_forward_pages_hold_every_line_once_and_end_in_the_same_token(
    endpoint: Endpoint, job: str
) -> None:
    stream = streams(endpoint, job)[0]
    page = read(endpoint, stream, startFromHead=True, limit=7)
    seen = page["events"]
    while True:
        token = page["nextForwardToken"]
        page = read(endpoint, stream, nextToken=token, limit=7)
        if page["nextForwardToken"] == token:
            break
        seen += page["events"]
    assert page["events"] == []
    assert numbered(seen) == EXPECTED


def test_backward_pages_hold_every_line_once(endpoint: Endpoint, job: str) -> None:
    stream = streams(endpoint, job)[0]
    page = read(endpoint, stream, limit=7)
    assert page["events"][-1]["message"] == EXPECTED[-1]
    seen = page["events"]
    while True:
        token = page["nextBackwardToken"]
        page = read(endpoint, stream, nextToken=token, limit=7)
        if page["nextBackwardToken"] == token:
            break
        seen = page["events"] + seen
    assert numbered(seen) == EXPECTED


def test_start_time_leaves_out_what_was_before(endpoint: Endpoint, job: str) -> None:
    stream = streams(endpoint, job)[0]
    last = read(endpoint, stream)["events"][-1]["timestamp"]
    events = read(endpoint, stream, startFromHead=True, startTime=last + 1)["events"]
    assert events == []
    events = read(endpoint, stream, startFromHead=True, endTime=last + 1)["events"]
    assert numbered(events) == EXPECTED


def test_streams_come_in_pages(endpoint: Endpoint, job: str) -> None:
    pages = endpoint.client("logs").get_paginator("describe_log_streams")
    found = [
        stream["logStreamName"]
        for page in pages.paginate(
            logGroupName=GROUP,
            logStreamNamePrefix=f"{job}/",
            PaginationConfig={"PageSize": 1},
        )
        for stream in page["logStreams"]
    ]
    assert found == streams(endpoint, job)


def test_filter_finds_a_line_on_all_hosts(endpoint: Endpoint, job: str) -> None:
    found = endpoint.client("logs").filter_log_events(
        logGroupName=GROUP, logStreamNamePrefix=f"{job}/", filterPattern='"line 7"'
    )
    assert [each["message"] for each in found["events"]] == ["line 7", "line 7"]


def test_unknown_stream_is_a_missing_resource(endpoint: Endpoint, job: str) -> None:
    with pytest.raises(ClientError) as caught:
        read(endpoint, f"{job}/nobody")
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceNotFoundException"
    assert error["Message"] == "The specified log stream does not exist."


def test_lines_appear_while_the_job_runs(endpoint: Endpoint) -> None:
    name = endpoint.start(endpoint.training_request("echo early; sleep 300"))
    endpoint.reaches(name, "Training")

    def messages() -> list[str]:
        return [
            event["message"]
            for stream in streams(endpoint, name)
            for event in read(endpoint, stream, startFromHead=True)["events"]
        ]

    wait_until(messages, lambda seen: "early" in seen, clock=endpoint.clock, what="line early")
    assert endpoint.describe(name)["TrainingJobStatus"] == "InProgress"
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    endpoint.finished(name)
