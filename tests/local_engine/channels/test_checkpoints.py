from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from include.local_engine.channels import checkpoints
from include.local_engine.channels.checkpoints import (
    MirroredFolder,
    MirrorThread,
    is_open_for_writing,
)
from include.local_engine.channels.locations import S3Location
from include.local_engine.s3.objects import ObjectInfo

if TYPE_CHECKING:
    from pathlib import Path

    from include.local_engine.s3 import ObjectStore

BUCKET = "data-bucket"
LOCATION = S3Location(bucket=BUCKET, key="run/checkpoints")


def keys(objects: ObjectStore) -> list[str]:
    return [each.key for each in objects.list(BUCKET) if isinstance(each, ObjectInfo)]


def read(objects: ObjectStore, key: str) -> bytes:
    with objects.open(BUCKET, key) as file:
        return file.read()


@pytest.fixture
def mirrored(tmp_path: Path, objects: ObjectStore) -> MirroredFolder:
    return MirroredFolder(tmp_path / "folder", LOCATION, objects)


def test_a_restored_file_can_be_changed_without_touching_the_object(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    objects.put(BUCKET, "run/checkpoints/step-1/model", b"one")
    objects.put(BUCKET, "run/checkpoints-of-another/model", b"other")

    assert mirrored.restore() == 1
    with (tmp_path / "folder" / "step-1" / "model").open("ab") as file:
        file.write(b" more")

    assert read(objects, "run/checkpoints/step-1/model") == b"one"


def test_new_changed_and_deleted_files_are_mirrored(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    folder = tmp_path / "folder"
    (folder / "a").write_bytes(b"1")
    (folder / "b").write_bytes(b"2")
    assert mirrored.sync() == 2
    assert mirrored.sync() == 0

    (folder / "a").write_bytes(b"1 changed")
    (folder / "b").unlink()
    assert mirrored.sync() == 2

    assert keys(objects) == ["run/checkpoints/a"]
    assert read(objects, "run/checkpoints/a") == b"1 changed"


def test_a_restored_file_that_is_deleted_is_deleted_in_s3(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    objects.put(BUCKET, "run/checkpoints/old", b"x")
    mirrored.restore()

    (tmp_path / "folder" / "old").unlink()
    mirrored.sync()

    assert keys(objects) == []


def test_a_file_that_is_being_written_waits_until_it_is_closed(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    path = tmp_path / "folder" / "model.pt"
    with path.open("wb") as file:
        file.write(b"half")
        file.flush()
        assert is_open_for_writing(path) is True
        assert mirrored.sync() == 0
        file.write(b" and half")

    assert mirrored.sync() == 1
    assert read(objects, "run/checkpoints/model.pt") == b"half and half"


@pytest.mark.parametrize(
    ("grows_below", "found"),
    [
        (None, []),
        ("statistics/", ["statistics/rank.jsonl"]),
        ("", ["own.jsonl", "statistics/rank.jsonl"]),
    ],
)
def test_only_lines_where_files_grow_go_up_while_they_are_written(
    tmp_path: Path, objects: ObjectStore, grows_below: str | None, found: list[str]
) -> None:
    mirrored = MirroredFolder(tmp_path / "folder", LOCATION, objects, grows_below=grows_below)
    (tmp_path / "folder" / "statistics").mkdir()
    names = ["own.jsonl", "statistics/rank.jsonl", "statistics/model.pt"]
    with ExitStack() as stack:
        for name in names:
            file = stack.enter_context((tmp_path / "folder" / name).open("wb", buffering=0))
            file.write(b"{}\n")
        mirrored.sync()
        assert keys(objects) == [f"run/checkpoints/{name}" for name in found]

    mirrored.sync(final=True)
    assert keys(objects) == [f"run/checkpoints/{name}" for name in sorted(names)]


def test_without_leases_a_file_is_complete_once_it_rests(
    tmp_path: Path, mirrored: MirroredFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "is_open_for_writing", lambda _: None)
    monkeypatch.setattr(checkpoints, "STABLE_S", 0.0)
    (tmp_path / "folder" / "a").write_bytes(b"1")

    assert mirrored.sync() == 0
    assert mirrored.sync() == 1


def test_the_last_round_takes_what_is_still_open(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    with (tmp_path / "folder" / "a").open("wb") as file:
        file.write(b"killed in the middle")
        file.flush()
        mirrored.sync(final=True)

    assert keys(objects) == ["run/checkpoints/a"]


def test_instances_share_the_prefix_without_undoing_each_other(
    tmp_path: Path, objects: ObjectStore
) -> None:
    objects.put(BUCKET, "run/checkpoints/old", b"x")
    first, second = (MirroredFolder(tmp_path / name, LOCATION, objects) for name in ("one", "two"))
    first.restore()
    second.restore()

    (tmp_path / "one" / "old").unlink()
    (tmp_path / "two" / "rank-1").write_bytes(b"y")
    for folder in (first, second, first, second):
        folder.sync()

    assert keys(objects) == ["run/checkpoints/rank-1"]


def test_the_thread_uploads_while_the_job_runs(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    thread = MirrorThread({"algo-1": mirrored}, interval_s=0.01)
    thread.start()
    (tmp_path / "folder" / "a").write_bytes(b"1")
    waiting = threading.Event()
    for _ in range(500):
        if keys(objects):
            break
        waiting.wait(0.01)

    assert keys(objects) == ["run/checkpoints/a"]
    thread.finish()
    assert not thread.is_alive()
