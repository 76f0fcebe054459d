"""A checkpoint prefix ends in `/`: AWS restores whatever begins with the string, also a neighbor's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sagemaker_api.test_tuning_request import PLACE, SPOT
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import TuningJobSpec

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


@GIVEN
def test_checkpoints_of_raw_overrides_are_a_folder(given: str) -> None:
    raw = {"CheckpointConfig": {"S3Uri": given}}
    job = TrainingJobSpec.from_mapping({**SPOT["training"], "raw_request_overrides": raw})
    search = TuningJobSpec.from_mapping(
        {**SPOT, "raw_request_overrides": {"TrainingJobDefinition": raw}}
    )
    trial = {**SPOT, "training": {**SPOT["training"], "raw_request_overrides": raw}}

    trained = render_training_job(job, name="job", **PLACE)
    searches = [
        render_tuning_job(each, name="tune", **PLACE)["TrainingJobDefinition"]
        for each in (search, TuningJobSpec.from_mapping(trial))
    ]

    found = [each["CheckpointConfig"]["S3Uri"] for each in (trained, *searches)]
    assert found == ["s3://b/ddp-x1/"] * 3


def environment_of(**changes: Any) -> dict[str, str]:
    spec = {**spec_of("s3://b/c"), "enable_network_isolation": False, **changes}
    request = render_training_job(TrainingJobSpec.from_mapping(spec), name="job", **PLACE)
    return dict(request.get("Environment", {}))


def test_a_script_is_told_where_its_checkpoints_are() -> None:
    assert environment_of() == {
        "MODE": "x",
        "TRAINYARD_CHECKPOINT_S3_URI": "s3://b/c/",
        "TRAINYARD_STATISTICS_S3_URI": "s3://b/c-statistics/",
    }


def test_statistics_of_a_job_with_a_hook_go_where_the_hooks_do() -> None:
    told = environment_of(debugger_hook_config={"S3OutputPath": "s3://b/out"})

    assert told.keys() == {"MODE", "TRAINYARD_CHECKPOINT_S3_URI"}


def test_what_the_spec_says_of_the_variable_stays() -> None:
    given = {
        "TRAINYARD_CHECKPOINT_S3_URI": "s3://b/elsewhere/",
        "TRAINYARD_STATISTICS_S3_URI": "s3://b/numbers/",
    }

    assert environment_of(environment=given) == given


@pytest.mark.parametrize(
    "changes", [{"enable_network_isolation": True}, {"checkpoint_s3_uri": None, "max_run": 60}]
)
def test_a_script_that_cannot_reach_them_is_told_nothing(changes: dict[str, Any]) -> None:
    assert environment_of(**changes) == {"MODE": "x"}


def test_a_trial_is_not_told_of_the_searchs_address() -> None:
    training = {**spec_of("s3://b/c"), "enable_network_isolation": False}
    spec = TuningJobSpec.from_mapping({**SPOT, "training": training})

    definition = render_tuning_job(spec, name="tune", **PLACE)["TrainingJobDefinition"]

    assert definition["Environment"] == {"MODE": "x"}


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [({}, True), ({"enable_network_isolation": True}, False), ({"checkpoint_s3_uri": None}, False)],
    ids=["statistics", "isolated", "no place"],
)
def test_a_script_is_told_of_the_key_of_what_it_puts(
    changes: dict[str, Any], is_told: bool
) -> None:
    given = {**spec_of("s3://b/c"), "enable_network_isolation": False, "max_run": 60, **changes}
    spec = TrainingJobSpec.from_mapping(given)

    request = render_training_job(spec, name="job", kms_key_id="key/1", **PLACE)

    assert request["Environment"].get("TRAINYARD_KMS_KEY_ID") == ("key/1" if is_told else None)
