"""A source that is written to while it is sharded is refused: an address never holds another source's content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.conftest import Store
from trainyard.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Overtaken(Store):
    """A store in which something happens just before an object of the source is opened."""

    __slots__ = ("happens",)

    def __init__(self, root: Path, happens: Callable[[], None]) -> None:
        super().__init__(root)
        object.__setattr__(self, "happens", happens)

    def open(self, uri: str, *, etag: str | None = None) -> BinaryIO:
        if uri.startswith("s3://source/"):
            self.happens()
        return super().open(uri, etag=etag)


def write(path: Path, first: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(first, first + 300)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"a": numbers}), path)
    else:
        path.write_text("a\n" + "".join(f"{number}\n" for number in numbers))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["replaced", "deleted"])
def test_an_object_replaced_after_it_was_listed_is_refused(
    tmp_path: Path, suffix: str, is_deleted: bool
) -> None:
    path = tmp_path / "store" / "source" / f"t.{suffix}"
    write(path, 1000)
    replace = path.unlink if is_deleted else lambda: write(path, 5000)
    with pytest.raises(DataError, match="has changed since it was listed") as caught:
        Overtaken(tmp_path / "store", replace).shard("s3://source/")
    assert f"s3://source/t.{suffix}" in str(caught.value)


@pytest.mark.parametrize("keeps_times", [False, True], ids=["written", "written-and-dated-back"])
def test_a_local_file_written_to_while_it_is_read_is_refused(
    tmp_path: Path, keeps_times: bool
) -> None:
    path = tmp_path / "t.csv"
    write(path, 1000)
    status = path.stat()

    class WritesMeanwhile(Store):
        __slots__ = ()

        def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
            write(tmp_path / "t.csv", 5000)  # as many bytes as before
            if keeps_times:
                os.utime(tmp_path / "t.csv", ns=(status.st_atime_ns, status.st_mtime_ns))
            super().put_file(path, uri, sha256=sha256)

    store = WritesMeanwhile(tmp_path / "store")
    with pytest.raises(DataError, match=r"changed while it was read") as caught:
        store.shard(path)
    assert "t.csv" in str(caught.value)
    assert not [head.uri for head in store.list("s3://bucket/") if "index" in head.uri]
