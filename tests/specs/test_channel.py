"""Channels are read from what users write."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.specs.channel import DatasetInput, FileSystemInput, TrainingInput, read_channel


def test_an_address_is_a_channel() -> None:
    assert read_channel("s3://b/train") == TrainingInput(s3_data="s3://b/train")


def test_a_channel_stays_what_it_is() -> None:
    channel = TrainingInput(s3_data="s3://b/x", shuffle_seed=3)

    assert read_channel(channel) is channel


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"s3_data": "s3://b/x", "input_mode": "FastFile"}, TrainingInput),
        (
            {"file_system_id": "fs-1", "file_system_type": "EFS", "directory_path": "/d"},
            FileSystemInput,
        ),
        ({"dataset_arn": "arn:x"}, DatasetInput),
    ],
    ids=["s3", "file system", "data set"],
)
def test_the_fields_say_which_kind_it_is(value: dict[str, Any], kind: type) -> None:
    assert isinstance(read_channel(value), kind)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("/local/path", "inputs.train.s3_data: is not an S3 URI"),
        (5, "inputs.train: is not a channel"),
        ({"s3_uri": "s3://b/x"}, "inputs.train.s3_uri: is an unknown key"),
        (
            {"s3_data": "s3://b/x", "attribute_names": ["a"]},
            "inputs.train.attribute_names: is allowed for s3_data_type AugmentedManifestFile only",
        ),
        ({"file_system_id": "fs-1"}, "inputs.train.directory_path: is required"),
    ],
    ids=["local", "number", "wrong key", "attributes", "half a file system"],
)
def test_what_is_no_channel_says_why(value: object, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_channel(value, where="inputs.train")

    assert says in str(caught.value)
