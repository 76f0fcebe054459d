"""A watch of folders sees every file, in folders that are new as well, and no folder without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.sandbox.folder_watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[FolderWatch]:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/earlier").write_bytes(b"1")
    watch = FolderWatch([tmp_path / "checkpoints"])
    watch.begin()
    yield watch
    watch.close()


def make_file(folder: Path) -> None:
    (folder / "step-1").write_bytes(b"1")


def make_file_in_new_folder(folder: Path) -> None:
    (folder / "step-1/shards").mkdir(parents=True)
    (folder / "step-1/shards/0").write_bytes(b"1")


def rename_folder(folder: Path) -> None:
    new = folder.parent / "new"
    new.mkdir()
    make_file(new)
    new.rename(folder / "step-1")


@pytest.mark.parametrize("change", [make_file, make_file_in_new_folder, rename_folder])
def test_a_file_is_seen_once(
    watch: FolderWatch, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    assert not watch.has_changed()
    change(tmp_path / "checkpoints")
    assert watch.has_changed()
    assert not watch.has_changed()


def test_a_folder_without_files_is_not_seen_until_it_has_one(
    watch: FolderWatch, tmp_path: Path
) -> None:
    marker = tmp_path / "checkpoints/marker"
    marker.mkdir()
    assert not watch.has_changed()
    marker.rmdir()
    assert not watch.has_changed()
    marker.mkdir()
    assert not watch.has_changed()
    make_file(marker)
    assert watch.has_changed()
