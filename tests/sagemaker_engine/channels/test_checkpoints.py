from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.channels import checkpoints
from sagemaker_engine.channels.bandwidth import Line
from sagemaker_engine.channels.checkpoints import MirroredFolder, Mirrors
from sagemaker_engine.channels.locations import S3Location
from sagemaker_engine.s3.objects import ObjectInfo

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

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

    assert mirrored.restore() == len(b"one")
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
    assert mirrored.sync(final=True) == 2

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


def test_a_prefix_takes_its_neighbors_and_they_go_up_below_it(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    objects.put(BUCKET, "run/checkpoints/step-1", b"own")
    objects.put(BUCKET, "run/checkpoints-16/step-2", b"neighbor")

    mirrored.restore()

    assert (tmp_path / "folder" / "-16" / "step-2").read_bytes() == b"neighbor"
    assert mirrored.sync() == 1
    assert read(objects, "run/checkpoints/-16/step-2") == b"neighbor"


def test_a_file_that_grows_goes_up_as_it_is_and_again(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    path = tmp_path / "folder" / "model.pt"
    with path.open("wb", buffering=0) as file:
        file.write(b"half")
        assert mirrored.sync() == 1
        assert read(objects, "run/checkpoints/model.pt") == b"half"
        file.write(b" and half")

    assert mirrored.sync() == 0, "a file rests between two uploads"
    assert mirrored.sync(final=True) == 1
    assert read(objects, "run/checkpoints/model.pt") == b"half and half"


def test_a_deletion_passes_an_upload_that_is_under_way(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOOK_S", 0.0)
    folder = tmp_path / "folder"
    seen: list[list[str]] = []

    def look(_seconds: float) -> None:
        (folder / "old").unlink(missing_ok=True)
        seen.append(keys(objects))

    line = Line(bytes_per_s=lambda: 100.0, wait=look, clock=iter(range(1000)).__next__)
    mirrored = MirroredFolder(folder, LOCATION, objects)
    (folder / "old").write_bytes(b"1")
    mirrored.sync()
    slow = MirroredFolder(folder, LOCATION, objects, uplink=line)
    slow.restore()
    (folder / "new").write_bytes(b"x" * 1000)

    slow.sync()

    assert seen[0] == ["run/checkpoints/old"]
    assert seen[-1] == [], "the old one is gone, the new one not there yet"
    assert keys(objects) == ["run/checkpoints/new"]


def test_an_upload_that_is_cut_leaves_what_was_there(tmp_path: Path, objects: ObjectStore) -> None:
    folder = tmp_path / "folder"
    first = MirroredFolder(folder, LOCATION, objects)
    (folder / "latest").write_bytes(b"old")
    first.sync()
    waits = iter(range(1000))
    slow: MirroredFolder

    def vanish(_seconds: float) -> None:
        if next(waits) == 3:
            slow.abandon()

    line = Line(bytes_per_s=lambda: 10.0, wait=vanish, clock=iter(range(1000)).__next__)
    slow = MirroredFolder(folder, LOCATION, objects, uplink=line)
    (folder / "latest").write_bytes(b"new" * 100)
    (folder / "next").write_bytes(b"new" * 100)

    slow.sync()

    assert keys(objects) == ["run/checkpoints/latest"]
    assert read(objects, "run/checkpoints/latest") == b"old"


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


def test_each_hosts_thread_uploads_while_the_job_runs(
    tmp_path: Path, objects: ObjectStore, mirrored: MirroredFolder
) -> None:
    """One host's line is as good as cut: the other's does not wait for it."""
    other = MirroredFolder(
        tmp_path / "other", LOCATION, objects, uplink=Line(bytes_per_s=lambda: 1.0)
    )
    mirrors = Mirrors({"algo-1": other, "algo-2": mirrored}, interval_s=0.01)
    (tmp_path / "other" / "big").write_bytes(b"x" * 10_000)
    mirrors.start()
    (tmp_path / "folder" / "a").write_bytes(b"1")
    waiting = threading.Event()
    for _ in range(2000):
        if keys(objects):
            break
        waiting.wait(0.01)

    assert keys(objects) == ["run/checkpoints/a"]
    mirrors.finish(gone_at={"algo-1": 0.0})
    assert keys(objects) == ["run/checkpoints/a"]


def test_a_lost_host_brings_up_what_its_notice_allows(tmp_path: Path, objects: ObjectStore) -> None:
    folders = {
        f"algo-{number}": MirroredFolder(tmp_path / str(number), LOCATION, objects)
        for number in (1, 2)
    }
    for number in (1, 2):
        (tmp_path / str(number) / f"last-{number}").write_bytes(b"1")
    mirrors = Mirrors(folders, interval_s=60.0)
    mirrors.abandon(["algo-2"])

    mirrors.finish(gone_at={"algo-1": time.monotonic() + 60.0, "algo-2": 0.0})

    assert keys(objects) == ["run/checkpoints/last-1"]
