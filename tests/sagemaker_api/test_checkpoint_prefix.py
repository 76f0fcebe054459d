"""A checkpoint prefix ends in `/`: AWS restores whatever begins with the string, also a neighbour's."""

from __future__ import annotations

from typing import Any

import pytest

from include.sagemaker_api.training_request import render_training_job
from include.sagemaker_api.tuning_request import render_tuning_job
from include.specs.training_job import TrainingJobSpec
from include.specs.tuning_job import TuningJobSpec
from tests.sagemaker_api.test_tuning_request import PLACE, SPOT

GIVEN = pytest.mark.parametrize("given", ["s3://b/ddp-x1", "s3://b/ddp-x1/", "s3://b/ddp-x1//"])


def spec_of(given: str) -> dict[str, Any]:
    return {**SPOT["training"], "checkpoint_s3_uri": given}


@GIVEN
def test_a_training_jobs_checkpoints_are_a_folder(given: str) -> None:
    spec = TrainingJobSpec.from_mapping(spec_of(given))

    request = render_training_job(spec, name="job", **PLACE)

    assert request["CheckpointConfig"]["S3Uri"] == "s3://b/ddp-x1/"


@GIVEN
def test_a_searchs_checkpoints_are_a_folder(given: str) -> None:
    spec = TuningJobSpec.from_mapping({**SPOT, "training": spec_of(given)})

    request = render_tuning_job(spec, name="tune", **PLACE)

    definition = request["TrainingJobDefinition"]
    assert definition["CheckpointConfig"]["S3Uri"] == "s3://b/ddp-x1/"
