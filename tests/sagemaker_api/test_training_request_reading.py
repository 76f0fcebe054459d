"""A request that somebody else has made becomes a spec that renders as that request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.sagemaker_api.training_request_reading import training_job_fields
from trainyard.specs.training_job import TrainingJobSpec

TESTS = Path(__file__).resolve().parents[1]
GOLDEN = [
    *(p for p in (TESTS / "sagemaker_api/golden").glob("*.json") if "processing" not in p.name),
    *(TESTS / "specs/golden").glob("*.json"),
]


def minimal() -> dict[str, Any]:
    text = (TESTS / "sagemaker_api/golden/minimal.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def read_and_rendered(request: dict[str, Any]) -> dict[str, Any]:
    spec = TrainingJobSpec.from_mapping(training_job_fields(request))
    return render_training_job(spec, name=request["TrainingJobName"], region="us-east-1")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_rendering_what_was_read_gives_the_request(path: Path) -> None:
    request = json.loads(path.read_text(encoding="utf-8"))

    assert read_and_rendered(request) == request


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_member_of_a_request_has_a_field_of_its_own(path: Path) -> None:
    fields = training_job_fields(json.loads(path.read_text(encoding="utf-8")))

    assert "raw_request_overrides" not in fields


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        ({"EnableNetworkIsolation": False}, {"EnableNetworkIsolation": False}),
        ({"EnableManagedSpotTraining": False}, {"EnableManagedSpotTraining": False}),
    ],
    ids=["isolation", "spot"],
)
def test_a_default_that_is_said_aloud_stays_said(
    members: dict[str, Any], kept: dict[str, Any]
) -> None:
    request = minimal() | members

    assert training_job_fields(request)["raw_request_overrides"] == kept
    assert read_and_rendered(request) == request


def test_gzip_that_is_said_aloud_stays_said() -> None:
    request = minimal()
    request["OutputDataConfig"] = {**request["OutputDataConfig"], "CompressionType": "GZIP"}

    assert read_and_rendered(request) == request


def test_an_unknown_member_of_a_channel_is_refused_by_its_name() -> None:
    source = {"S3DataSource": {"S3DataTyp": "S3Prefix", "S3Uri": "s3://bucket/train"}}
    request = minimal() | {"InputDataConfig": [{"ChannelName": "train", "DataSource": source}]}

    with pytest.raises(SpecError, match=r"S3DataSource.S3DataTyp: .*did you mean 'S3DataType'"):
        training_job_fields(request)


def test_an_unknown_source_of_a_channel_is_refused_by_its_name() -> None:
    request = minimal() | {
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3Source": {}}}]
    }

    with pytest.raises(SpecError, match=r"InputDataConfig\[train\]\.DataSource\.S3Source"):
        training_job_fields(request)
