"""The checkpoint mirror while S3 fails: it goes on, says so, catches up and loses nothing on the way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.channels.checkpoints import MirroredFolder, Mirrors, NotInS3Error
from sagemaker_engine.channels.container_files import ContainerFiles, Scan
from sagemaker_engine.channels.locations import S3Location
from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.channels.s3_agent import S3Agent
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.fault import S3Fault
from sagemaker_engine.s3.objects import ObjectInfo
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
LOCATION = S3Location(bucket=BUCKET, key="run/checkpoints")


@dataclass
class Outage:
    """Refuses requests whose key holds one of `keys`, with `code`."""

    keys: tuple[str, ...] = ()
    code: str = "SlowDown"
    refused: threading.Event = field(default_factory=threading.Event)

    def find(self, operation: str, bucket: str, key: str) -> S3Fault | None:
        assert (operation in {"PutObject", "DeleteObject"}, bucket) == (True, BUCKET)
        if not any(each in key for each in self.keys):
            return None
        self.refused.set()
        return S3Fault(error=S3Error(self.code))


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "folder"


@pytest.fixture
def mirrored(folder: Path, objects: ObjectStore, outage: Outage) -> MirroredFolder:
    return MirroredFolder(folder, LOCATION, S3Agent(objects.root, find_fault=outage.find))


def names(objects: ObjectStore) -> list[str]:
    found = objects.list(BUCKET, LOCATION.key)
    return [each.key.rpartition("/")[2] for each in found if isinstance(each, ObjectInfo)]


def test_what_is_refused_is_named_and_the_rest_goes_up(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder
) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"1")
    outage.keys = ("/b",)

    with pytest.raises(
        NotInS3Error, match=r"synchronize 'b' with s3://.*: SlowDown \(503\)"
    ) as left:
        mirrored.sync()

    assert left.value.names == ("b",)
    assert names(objects) == ["a", "c"]
    outage.keys = ()
    assert mirrored.sync() == 1
    assert names(objects) == ["a", "b", "c"]


def test_a_deletion_does_not_wait_for_what_is_refused(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder
) -> None:
    (folder / "step-1").write_bytes(b"1")
    mirrored.sync()
    outage.keys = ("step-2",)
    (folder / "step-2").write_bytes(b"2")
    (folder / "step-1").unlink()

    with pytest.raises(NotInS3Error):
        mirrored.sync()

    assert names(objects) == []
    outage.keys = ()
    assert mirrored.sync() == 1
    assert names(objects) == ["step-2"]


def test_a_file_that_a_scan_missed_is_not_deleted(
    folder: Path, objects: ObjectStore, mirrored: MirroredFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan can miss a file that is being replaced."""
    (folder / "step-1").write_bytes(b"1")
    mirrored.sync()
    monkeypatch.setattr(ContainerFiles, "scan", lambda *_: Scan())

    assert mirrored.sync() == 0

    assert names(objects) == ["step-1"]


def test_a_delete_that_is_refused_is_made_up_for(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder
) -> None:
    (folder / "old").write_bytes(b"1")
    mirrored.sync()
    (folder / "old").unlink()
    outage.keys = ("old",)
    with pytest.raises(NotInS3Error):
        mirrored.sync()
    assert names(objects) == ["old"]

    outage.keys = ()
    assert mirrored.sync() == 1
    assert names(objects) == []


def test_the_thread_tells_of_an_outage_once_and_of_its_end(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder
) -> None:
    warnings: list[tuple[str, str]] = []
    ended = threading.Event()

    def warn(name: str, text: str) -> None:
        warnings.append((name, text))
        if "again" in text and len(warnings) > 1:
            ended.set()

    outage.keys = ("checkpoints/",)
    thread = Mirrors({"algo-1": mirrored}, interval_s=0.005, warn=warn)
    (folder / "a").write_bytes(b"1")
    thread.start()
    wait(outage.refused.is_set)
    outage.refused.clear()
    wait(outage.refused.is_set)
    (folder / "a").unlink()
    (folder / "b").write_bytes(b"2")
    outage.keys = ()
    assert ended.wait(EVENT_LIMIT_S)
    thread.finish()

    assert [name for name, _ in warnings] == ["algo-1", "algo-1"]
    assert "cannot synchronize 'a' with s3://data-bucket/run/checkpoints" in warnings[0][1]
    assert "the job continues" in warnings[0][1]
    assert "S3 accepts all changes again" in warnings[1][1]
    assert names(objects) == ["b"]


def test_the_last_round_waits_for_s3(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder
) -> None:
    (folder / "a").write_bytes(b"1")
    outage.keys = ("/a",)

    def wait_for_the_end(_seconds: float) -> None:
        outage.keys = ()

    thread = Mirrors(
        {"algo-1": mirrored}, interval_s=60.0, retrier=Retrier(scale=0.01, wait=wait_for_the_end)
    )
    thread.finish()

    assert names(objects) == ["a"]


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied"])
def test_the_last_round_names_what_is_lost(
    folder: Path, objects: ObjectStore, outage: Outage, mirrored: MirroredFolder, code: str
) -> None:
    warnings: list[str] = []
    for number in range(8):
        (folder / f"f{number}").write_bytes(b"1")
    outage.keys, outage.code = ("/f",), code
    (folder / "good").write_bytes(b"1")
    thread = Mirrors(
        {"algo-1": mirrored},
        interval_s=60.0,
        retrier=Retrier(limit_s=0.1),
        warn=lambda _name, text: warnings.append(text),
    )

    with pytest.raises(NotInS3Error) as lost:
        thread.finish()

    assert set(lost.value.names) == {f"f{number}" for number in range(8)}
    assert lost.value.code == code
    assert "and 3 more" in warnings[-1]
    assert warnings[-1].endswith("these changes are lost")
    assert names(objects) == ["good"]


def wait(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(EVENT_LIMIT_S / 0.01)):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come")
