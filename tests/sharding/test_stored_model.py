"""An adapter in S3 is distinguished from a whole model by its files, or by the beginning of its archive."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from trainyard.sharding.objects import LocalObjects
from trainyard.sharding.stored_model import is_adapter

if TYPE_CHECKING:
    from pathlib import Path

ADAPTER = ("README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json")
WHOLE = ("chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json")
SHARDS = ("config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json")
PREFIX = "s3://bucket/old/"


def archived(place: Path, names: tuple[str, ...]) -> Path:
    """Write a model.tar.gz with files of random bytes; return its path."""
    place.mkdir(parents=True)
    with tarfile.open(place / "model.tar.gz", "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"./{name}")
            member.size = 100_000
            archive.addfile(member, io.BytesIO(os.urandom(member.size)))
    return place / "model.tar.gz"


@pytest.mark.parametrize(
    ("names", "expected"), [(ADAPTER, True), (WHOLE, False), (SHARDS, False), (("a.txt",), None)]
)
def test_files_and_archives_are_told_apart(
    tmp_path: Path, names: tuple[str, ...], expected: bool | None
) -> None:
    archived(tmp_path / "archive" / "bucket" / "old" / "output", names)
    folder = tmp_path / "folder" / "bucket" / "old"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"")

    assert is_adapter(LocalObjects(tmp_path / "archive"), PREFIX) is expected
    assert is_adapter(LocalObjects(tmp_path / "folder"), PREFIX) is expected


def test_only_the_beginning_of_an_archive_is_read(tmp_path: Path) -> None:
    path = archived(tmp_path / "bucket" / "old", WHOLE)
    os.truncate(path, 250_000)  # within the weights

    assert is_adapter(LocalObjects(tmp_path), f"{PREFIX}model.tar.gz") is False


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_no_model_is_neither(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "bucket" / "old").mkdir(parents=True)
    if content is not None:
        (tmp_path / "bucket" / "old" / "model.tar.gz").write_bytes(content)

    assert is_adapter(LocalObjects(tmp_path), PREFIX) is None
