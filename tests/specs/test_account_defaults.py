"""A job gets from its account what it leaves open, and nothing else of it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import SpecError
from trainyard.specs.account_defaults import AccountDefaults
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.training_job import TrainingJobSpec

ROLE = "arn:aws:iam::123456789012:role/Jobs"
GUARDED = {
    "subnets": ["subnet-0aaaaaaaaaaaaaaaa"],
    "security_group_ids": ["sg-0aaaaaaaaaaaaaaaa"],
    "volume_kms_key": "alias/volumes",
    "output_kms_key": "alias/models",
    "enable_network_isolation": True,
    "encrypt_inter_container_traffic": True,
    "environment": {"NCCL_DEBUG": "WARN"},
    "tags": {"cost-center": "42"},
}
NETWORK = ("subnets", "security_group_ids")
DEFAULTS = AccountDefaults.from_mapping(GUARDED)


def training(**members: Any) -> TrainingJobSpec:
    given = {"role": ROLE, "output_path": "s3://bucket/out", "image_uri": "image", **members}
    given.setdefault("instance_type", "ml.m5.xlarge")
    return TrainingJobSpec.from_mapping({"instance_count": 1, **given})


def with_defaults(defaults: AccountDefaults, spec: Any) -> Any:
    return replace(spec, **defaults.changes_to(spec))


def test_every_open_member_of_a_training_is_the_accounts() -> None:
    made = with_defaults(DEFAULTS, training())

    assert {name: getattr(made, name) for name in GUARDED} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in GUARDED.items()
    }


def test_the_jobs_own_values_win() -> None:
    own = training(
        subnets=["subnet-own"],
        security_group_ids=["sg-own"],
        output_kms_key="alias/own",
        environment={"NCCL_DEBUG": "INFO"},
        tags={"team": "vision"},
    )

    made = with_defaults(DEFAULTS, own)

    assert (made.subnets, made.output_kms_key) == (("subnet-own",), "alias/own")
    assert made.environment == {"NCCL_DEBUG": "INFO"}
    assert made.tags == {"cost-center": "42", "team": "vision"}


@pytest.mark.parametrize(
    "place",
    [
        {"instance_type": "ml.g5.xlarge"},
        {
            "instance_groups": [
                {
                    "instance_group_name": "a",
                    "instance_type": "ml.p4d.24xlarge",
                    "instance_count": 1,
                }
            ]
        },
    ],
)
def test_local_nvme_disks_take_no_volume_key(place: dict[str, Any]) -> None:
    groups = {"instance_type": None, "instance_count": None} if "instance_groups" in place else {}

    made = with_defaults(DEFAULTS, training(**{**groups, **place}))

    assert made.volume_kms_key is None
    assert made.output_kms_key == "alias/models"


def test_processing_and_automl_jobs_have_them_too() -> None:
    processing = with_defaults(DEFAULTS, ProcessingJobSpec(role=ROLE, instance_type="ml.m5.xlarge"))
    automl = with_defaults(
        DEFAULTS, AutoMLJobSpec(role=ROLE, train="s3://b/t", target="y", output_path="s3://b/o")
    )

    for made in (processing, automl):
        assert made.subnets == ("subnet-0aaaaaaaaaaaaaaaa",)
        assert made.volume_kms_key == "alias/volumes"
        assert made.tags == {"cost-center": "42"}
    assert processing.enable_network_isolation


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SpecError, match="subnets"):
        AccountDefaults.from_mapping({"subnet": ["subnet-a"]}, where="extra trainyard.job_defaults")


@pytest.mark.parametrize("name", NETWORK)
def test_half_a_network_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="or remove"):
        AccountDefaults.from_mapping({name: GUARDED[name]})


@given(st.sets(st.sampled_from(sorted(set(GUARDED) - set(NETWORK)))), st.booleans())
def test_only_what_is_set_is_merged_and_merging_again_changes_nothing(
    alone: set[str], has_network: bool
) -> None:
    names = alone | set(NETWORK if has_network else ())
    defaults = AccountDefaults.from_mapping({name: GUARDED[name] for name in names})

    made = with_defaults(defaults, training())

    assert replace(made, **{name: getattr(training(), name) for name in names}) == training()
    assert with_defaults(defaults, made) == made
