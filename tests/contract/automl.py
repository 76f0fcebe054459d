"""Small AutoML jobs for the conformance suite: their data, their requests, and waiting for them."""

from __future__ import annotations

import csv
import io
import random
from typing import TYPE_CHECKING, Any

from tests.contract.waiting import WaitClock, wait_until
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.conftest import Endpoint

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})
CLOCK = WaitClock(poll_s=0.1, limit_s=EVENT_LIMIT_S)
WORDS = ("fine", "late", "broken", "quick", "again", "never", "parcel", "driver")
TARGET = "returned"


NUM_ROWS = 520
"""Rows of a table with which a job runs: SageMaker wants at least 500."""


def table(*, rows: int = NUM_ROWS) -> bytes:
    """Return a CSV with a number, a category, a date and a text, gaps among them, and a target that follows them."""
    draw = random.Random(5)  # noqa: S311  # A table, no secret.
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["order_id", "price", "city", "ordered_on", "comment", "always", TARGET])
    for number in range(rows):
        price, city = draw.uniform(1, 99), draw.choice(["Oslo", "Rome", "Cork"])
        month = draw.randrange(1, 13)
        is_returned = price > 50 or city == "Cork"
        comment = " ".join(draw.choice(WORDS) for _ in range(8))
        gap = number % 17 == 0
        writer.writerow(
            [
                *(f"order-{number}", "" if gap else f"{price:.2f}", city),
                *(f"2026-{month:02d}-11T10:00:00Z", comment, "same"),
                "yes" if is_returned else "no",
            ]
        )
    return file.getvalue().encode()


def channel(endpoint: Endpoint, *, data: bytes | None = None, **members: Any) -> dict[str, Any]:
    """Store a table and return the channel that reads it; None drops a member."""
    name = endpoint.name("table")
    endpoint.put(f"{name}/part.csv", table() if data is None else data)
    found = {
        "ChannelType": "training",
        "ContentType": "text/csv;header=present",
        "DataSource": {
            "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri(f"{name}/")}
        },
        **members,
    }
    return {key: value for key, value in found.items() if value is not None}


def request(
    endpoint: Endpoint,
    *,
    channels: list[dict[str, Any]] | None = None,
    tabular: dict[str, Any] | None = None,
    candidates: int = 1,
    algorithms: tuple[str, ...] = ("linear-learner",),
    **members: Any,
) -> dict[str, Any]:
    """Return a CreateAutoMLJobV2 request of ENSEMBLING; None drops a member."""
    config = {
        "TargetAttributeName": TARGET,
        "Mode": "ENSEMBLING",
        "CompletionCriteria": {"MaxCandidates": candidates},
        "CandidateGenerationConfig": {"AlgorithmsConfig": [{"AutoMLAlgorithms": [*algorithms]}]},
        **(tabular or {}),
    }
    whole = {
        "AutoMLJobName": f"a-{endpoint.name('x')[-20:]}",
        "AutoMLJobInputDataConfig": channels or [channel(endpoint)],
        "OutputDataConfig": {"S3OutputPath": endpoint.uri("automl")},
        "AutoMLProblemTypeConfig": {
            "TabularJobConfig": {key: value for key, value in config.items() if value is not None}
        },
        "RoleArn": endpoint.role_arn,
        **members,
    }
    return {key: value for key, value in whole.items() if value is not None}


def start(endpoint: Endpoint, wanted: dict[str, Any]) -> str:
    """Create an AutoML job and return its name."""
    endpoint.sagemaker.create_auto_ml_job_v2(**wanted)
    return str(wanted["AutoMLJobName"])


def describe(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Return what Describe says of an AutoML job."""
    return dict(endpoint.sagemaker.describe_auto_ml_job_v2(AutoMLJobName=name))


def reaches(
    endpoint: Endpoint, name: str, is_so: Callable[[dict[str, Any]], bool], *, what: str
) -> dict[str, Any]:
    """Wait until what Describe says fulfils `is_so`, and return it."""
    return wait_until(lambda: describe(endpoint, name), is_so, clock=CLOCK, what=what)


def finished(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Wait for the end of an AutoML job and return what Describe says then."""
    return reaches(
        endpoint, name, lambda seen: seen["AutoMLJobStatus"] in TERMINAL, what=f"end of {name}"
    )


def candidates(endpoint: Endpoint, name: str, **query: Any) -> list[dict[str, Any]]:
    """Return the candidates of an AutoML job."""
    answer = endpoint.sagemaker.list_candidates_for_auto_ml_job(AutoMLJobName=name, **query)
    return list(answer["Candidates"])
