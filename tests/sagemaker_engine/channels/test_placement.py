from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.channels.listing import ChannelFile
from sagemaker_engine.channels.locations import InputDataError
from sagemaker_engine.channels.placement import place_files

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
FILE = ChannelFile(bucket=BUCKET, key="in/a", path="deep/a")


def test_a_linked_file_takes_no_space_of_its_own(tmp_path: Path, objects: ObjectStore) -> None:
    objects.put(BUCKET, "in/a", b"12345")

    assert place_files([FILE], tmp_path / "x", objects, link=True) == 5

    placed = tmp_path / "x" / "deep" / "a"
    assert placed.stat().st_ino == objects.path(BUCKET, "in/a").stat().st_ino


def test_a_linked_file_keeps_its_content_when_the_object_is_overwritten(
    tmp_path: Path, objects: ObjectStore
) -> None:
    objects.put(BUCKET, "in/a", b"old")
    place_files([FILE], tmp_path / "x", objects, link=True)

    objects.put(BUCKET, "in/a", b"new")

    assert (tmp_path / "x" / "deep" / "a").read_bytes() == b"old"


def test_a_copied_file_can_be_written_without_touching_the_object(
    tmp_path: Path, objects: ObjectStore
) -> None:
    objects.put(BUCKET, "in/a", b"old")
    place_files([FILE], tmp_path / "x", objects, link=False)

    (tmp_path / "x" / "deep" / "a").write_bytes(b"scribbled")

    with objects.open(BUCKET, "in/a") as file:
        assert file.read() == b"old"


def test_an_object_that_went_away_is_named(tmp_path: Path, objects: ObjectStore) -> None:
    with pytest.raises(InputDataError, match="s3://data-bucket/in/a"):
        place_files([FILE], tmp_path / "x", objects, link=True)
