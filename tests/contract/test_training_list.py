from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

SCRIPTS = {"a": "true", "b": "exit 1", "c": "true", "d": "true", "e": "exit 1"}


@pytest.fixture(scope="module")
def stem(endpoint: Endpoint) -> str:
    """Five finished jobs, `<stem>-a` to `<stem>-e`, created in this order; b and e failed."""
    stem = endpoint.name("list")
    for letter, script in SCRIPTS.items():
        request = endpoint.training_request(script, TrainingJobName=f"{stem}-{letter}")
        endpoint.start(request)
    for letter in SCRIPTS:
        endpoint.finished(f"{stem}-{letter}")
    return stem


def letters(endpoint: Endpoint, stem: str, **query: Any) -> str:
    """Return the last letters of the jobs listed, over all pages."""
    pages = endpoint.sagemaker.get_paginator("list_training_jobs")
    found = ""
    for page in pages.paginate(NameContains=stem, **query):
        found += "".join(each["TrainingJobName"][-1] for each in page["TrainingJobSummaries"])
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "edcba"),
        ({"SortBy": "CreationTime", "SortOrder": "Ascending"}, "abcde"),
        ({"SortBy": "Name", "SortOrder": "Descending"}, "edcba"),
        ({"SortBy": "Name", "SortOrder": "Ascending"}, "abcde"),
        ({"SortBy": "Status", "SortOrder": "Ascending"}, "acdbe"),
        ({"StatusEquals": "Failed", "SortOrder": "Ascending"}, "be"),
        ({"StatusEquals": "Completed", "SortOrder": "Ascending"}, "acd"),
        ({"StatusEquals": "InProgress"}, ""),
    ],
    ids=["default", "oldest", "name-down", "name-up", "status", "failed", "completed", "running"],
)
def test_list_filters_and_sorts(
    endpoint: Endpoint, stem: str, query: dict[str, Any], expected: str
) -> None:
    assert letters(endpoint, stem, **query) == expected


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_pages_hold_every_job_once(endpoint: Endpoint, stem: str, size: int) -> None:
    assert letters(endpoint, stem, PaginationConfig={"PageSize": size}) == "edcba"


def test_status_filters_after_the_page_was_cut(endpoint: Endpoint, stem: str) -> None:
    page = endpoint.sagemaker.list_training_jobs(
        NameContains=stem, SortBy="Name", SortOrder="Ascending", MaxResults=1, StatusEquals="Failed"
    )
    assert page["TrainingJobSummaries"] == []
    assert page["NextToken"]


def test_list_filters_by_creation_time(endpoint: Endpoint, stem: str) -> None:
    second = endpoint.describe(f"{stem}-b")["CreationTime"]
    moment = timedelta(milliseconds=2)
    assert letters(endpoint, stem, CreationTimeAfter=second + moment) == "edc"
    assert letters(endpoint, stem, CreationTimeBefore=second - moment) == "a"


def test_list_filters_by_modification_time(endpoint: Endpoint, stem: str) -> None:
    modified = [endpoint.describe(f"{stem}-{letter}")["LastModifiedTime"] for letter in SCRIPTS]
    moment = timedelta(milliseconds=2)
    assert letters(endpoint, stem, LastModifiedTimeAfter=max(modified) + moment) == ""
    assert letters(endpoint, stem, LastModifiedTimeBefore=max(modified) + moment) == "edcba"


def test_summary_tells_what_describe_tells(endpoint: Endpoint, stem: str) -> None:
    [summary] = endpoint.sagemaker.list_training_jobs(NameContains=f"{stem}-a")[
        "TrainingJobSummaries"
    ]
    described = endpoint.describe(f"{stem}-a")
    for member in ("TrainingJobArn", "CreationTime", "TrainingEndTime", "TrainingJobStatus"):
        assert summary[member] == described[member], member


@pytest.mark.parametrize("token", ["nonsense", "WyJhIiwgMV0"], ids=["noise", "other-query"])
def test_foreign_next_token_is_refused(endpoint: Endpoint, token: str) -> None:
    with pytest.raises(ClientError) as caught:
        endpoint.sagemaker.list_training_jobs(NextToken=token)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
