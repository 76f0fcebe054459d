"""The store without the wire: links, paths, errors."""

from __future__ import annotations

import io
import pickle
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import CommonPrefix, ObjectAttributes
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"


@pytest.mark.parametrize("kind", ["bytes", "stream", "path", "plain reader"])
def test_put_takes_every_kind_of_source(store: ObjectStore, tmp_path: Path, kind: str) -> None:
    body = b"abc" * 500_000
    (tmp_path / "file").write_bytes(body)

    class Reader:
        def __init__(self) -> None:
            self._stream = io.BytesIO(body)

        def read(self, size: int) -> bytes:
            return self._stream.read(size)

    sources = {
        "bytes": body,
        "stream": io.BytesIO(body),
        "path": tmp_path / "file",
        "plain reader": Reader(),
    }
    info = store.put(BUCKET, "k", sources[kind])  # type: ignore[arg-type]
    assert (info.size, store.path(BUCKET, "k").read_bytes()) == (len(body), body)
    assert store.head(BUCKET, "k") == info


def test_put_by_link_shares_the_file_and_leaves_the_name_to_the_caller(
    store: ObjectStore, tmp_path: Path
) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"linked")
    info = store.put(BUCKET, "k", file, link=True)
    assert store.path(BUCKET, "k").stat().st_ino == file.stat().st_ino
    assert info.etag == store.put(BUCKET, "copy", b"linked").etag
    file.unlink()
    assert store.path(BUCKET, "k").read_bytes() == b"linked"


def test_link_to_gives_the_object_as_a_file_that_outlives_it(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put(BUCKET, "k", b"data")
    store.link_to(BUCKET, "k", tmp_path / "channel-file")
    assert (tmp_path / "channel-file").stat().st_ino == store.path(BUCKET, "k").stat().st_ino
    store.put(BUCKET, "k", b"changed")
    assert (tmp_path / "channel-file").read_bytes() == b"data"


def test_an_open_file_outlives_overwrite_and_delete(store: ObjectStore) -> None:
    store.put(BUCKET, "k", b"old")
    with store.open(BUCKET, "k") as file:
        store.put(BUCKET, "k", b"new")
        store.delete(BUCKET, "k")
        assert file.read() == b"old"


def test_overwriting_and_deleting_leave_no_blob_behind(store: ObjectStore) -> None:
    for body in (b"1", b"2", b"3"):
        store.put(BUCKET, "k", body)
    store.copy((BUCKET, "k"), (BUCKET, "copy"))
    store.blobs.reaper.wait()
    assert len(list(store.blobs.names())) == 2
    assert store.delete_many(BUCKET, ["k", "copy", "absent"]) == 2
    store.blobs.reaper.wait()
    assert list(store.blobs.names()) == []


def test_a_blob_that_cannot_be_removed_does_not_keep_the_others(
    store: ObjectStore, tmp_path: Path
) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.touch()
    store.blobs.reaper.remove([folder, file])
    waiting = threading.Thread(target=store.blobs.reaper.wait, daemon=True)
    waiting.start()
    waiting.join(EVENT_LIMIT_S)

    assert not waiting.is_alive()
    assert (folder.exists(), file.exists()) == (True, False)


def test_a_delete_that_fails_on_a_full_disk_takes_the_reserve_back(store: ObjectStore) -> None:
    store.put(BUCKET, "k", b"body")
    store.recover()
    with store.index.write() as db:
        db.execute("CREATE TABLE ballast (body BLOB)")
        db.execute(
            "CREATE TRIGGER grow BEFORE DELETE ON objects BEGIN INSERT INTO ballast VALUES (zeroblob(1000000)); END"
        )
    with store.index.read() as db:  # The store's only connection: SQLite reports a full disk.
        db.execute("PRAGMA max_page_count = 1")

    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.delete(BUCKET, "k")

    assert (store.root / "reserve").exists()


def test_a_prefix_listing_yields_objects_and_common_prefixes_in_order(store: ObjectStore) -> None:
    for key in ("a/1", "a/b/1", "a/b/2", "a-1", "b"):
        store.put(BUCKET, key, b"")
    listed = list(store.list(BUCKET, "a/", "/"))
    assert [info if isinstance(info, CommonPrefix) else info.key for info in listed] == [
        "a/1",
        CommonPrefix(prefix="a/b/"),
    ]


@pytest.mark.parametrize("call", ["put", "head", "open", "list", "delete"])
def test_every_call_names_a_missing_bucket(store: ObjectStore, call: str) -> None:
    arguments = {"put": ("no-bucket", "k", b"")}.get(call, ("no-bucket", "k"))
    with pytest.raises(S3Error) as error:
        getattr(store, call)(*arguments)
    assert error.value.code == "NoSuchBucket"
    assert "no-bucket" in str(error.value)


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(S3Error("NoSuchKey", Key="k")))  # noqa: S301 (our own bytes)
    assert (error.code, error.status, error.elements) == ("NoSuchKey", 404, {"Key": "k"})


def test_attributes_survive_json() -> None:
    attributes = ObjectAttributes(metadata={"ü": "x"}, tags={"a": "b"}, checksums={"CRC32": "x"})
    assert ObjectAttributes.from_json(attributes.to_json()) == attributes
    assert ObjectAttributes().to_json() == "{}"


def test_a_missing_file_is_an_internal_error_that_names_the_object(store: ObjectStore) -> None:
    store.put(BUCKET, "k", b"1")
    store.path(BUCKET, "k").unlink()
    with pytest.raises(S3Error, match=f"{BUCKET}/k are missing"):
        store.open(BUCKET, "k")
