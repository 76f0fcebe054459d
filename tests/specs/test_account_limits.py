"""Limits of a connection: what they demand and allow of every job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import SpecError
from trainyard.specs.account_defaults import AccountDefaults
from trainyard.specs.account_limits import AccountLimits, Required
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.training_job import TrainingJobSpec

ROLE = "arn:aws:iam::111122223333:role/TrainyardExecution"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
TRAINING = TrainingJobSpec(
    role=ROLE,
    output_path="s3://runs/output",
    instance_type="ml.m5.xlarge",
    instance_count=1,
    inputs={"train": "s3://data/train"},
)
PROCESSING = ProcessingJobSpec(role=ROLE, instance_type="ml.m5.xlarge")
ALL = AccountDefaults(
    subnets=("subnet-a",),
    security_group_ids=("sg-a",),
    volume_kms_key="alias/volumes",
    output_kms_key="alias/outputs",
    enable_network_isolation=True,
    encrypt_inter_container_traffic=True,
    tags={"cost-center": "42"},
)
STRICT = AccountLimits(required=tuple(Required), required_tags=("cost-center",))


def found(limits: AccountLimits, spec: Any) -> dict[str, str | None]:
    return {each.where: each.allowed for each in limits.findings(spec, image_uri=IMAGE)}


def test_everything_that_is_missing_is_said_at_once() -> None:
    names = {*(each.value for each in Required), "tags.cost-center"}

    assert set(found(STRICT, TRAINING)) == set(found(STRICT, PROCESSING)) == names
    with pytest.raises(SpecError, match=r"job_limits require.*trainyard\.job_defaults"):
        STRICT.check(TRAINING)


def test_the_defaults_can_give_all_that_is_required() -> None:
    STRICT.check(replace(TRAINING, **ALL.changes_to(TRAINING)))
    STRICT.check(replace(PROCESSING, **ALL.changes_to(PROCESSING)))


def test_a_volume_key_is_not_demanded_where_there_is_no_volume_to_encrypt() -> None:
    limits = AccountLimits(required=(Required.VOLUME_KMS_KEY,))

    assert found(limits, replace(TRAINING, instance_type="ml.g5.xlarge")) == {}
    assert found(limits, TRAINING) == {"volume_kms_key": None}


@pytest.mark.parametrize(
    ("limits", "where"),
    [
        ({"roles": ("arn:aws:iam::*:role/Other*",)}, "role"),
        ({"buckets": ("runs",)}, "bucket"),
        ({"images": ("111122223333.dkr.ecr.*",)}, "image_uri"),
        ({"instance_types": ("ml.g5.*", "ml.p5.*")}, "instance_type"),
    ],
)
def test_what_no_glob_matches_is_refused_with_what_is_allowed(limits: Any, where: str) -> None:
    (name,) = limits
    assert found(AccountLimits(**limits), TRAINING) == {where: ", ".join(limits[name])}
    assert found(AccountLimits(**{name: ("*",)}), TRAINING) == {}


def test_one_type_without_volumes_does_not_excuse_the_others() -> None:
    limits = AccountLimits(required=(Required.VOLUME_KMS_KEY,))
    groups = [
        {"instance_group_name": name, "instance_type": kind, "instance_count": 1}
        for name, kind in (("a", "ml.g5.xlarge"), ("b", "ml.m5.xlarge"))
    ]
    mixed = TrainingJobSpec.from_mapping(
        {"role": ROLE, "output_path": "s3://runs/output", "instance_groups": groups}
    )

    assert set(found(limits, mixed)) == {"volume_kms_key"}
    (finding,) = limits.findings(mixed, image_uri=None)
    assert "replace ml.g5.xlarge: types with local NVMe storage accept no key" in str(finding)


def test_overrides_of_the_request_are_refused_beside_limits() -> None:
    given = replace(TRAINING, raw_request_overrides={"VpcConfig": None})

    assert "raw_request_overrides" in found(STRICT, given)
    assert found(AccountLimits(), given) == {}


def test_an_automl_job_needs_only_what_it_can_have() -> None:
    names = {each for each in Required if hasattr(AutoMLJobSpec, each.value)}

    assert Required.ENABLE_NETWORK_ISOLATION not in names
    assert Required.VOLUME_KMS_KEY in names


@pytest.mark.parametrize(
    ("ceiling", "is_refused"), [(99.0, False), (100.0, False), (100.01, True), (None, True)]
)
def test_a_run_whose_price_is_unknown_is_above_every_limit(
    ceiling: float | None, is_refused: bool
) -> None:
    assert bool(list(AccountLimits(max_run_usd=100).cost_findings(ceiling))) is is_refused
    assert not list(AccountLimits().cost_findings(ceiling))


def test_a_limit_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"extra trainyard\.job_limits.*instance_types"):
        AccountLimits.from_mapping({"instance_type": ["x"]}, where="extra trainyard.job_limits")
    with pytest.raises(SpecError, match="encrypt_inter_container_traffic"):
        AccountLimits.from_mapping({"required": ["encryption"]}, where="job_limits")


@given(st.sets(st.sampled_from(Required)), st.sets(st.sampled_from(Required)))
def test_more_requirements_never_allow_more(some: set[Required], more: set[Required]) -> None:
    fewer = found(AccountLimits(required=tuple(some)), TRAINING)

    assert fewer.keys() <= found(AccountLimits(required=tuple(some | more)), TRAINING).keys()
