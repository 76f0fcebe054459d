"""Runs that shard one large source to one target at the same time, or after each other, make one whole data set."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.conftest import Store
from trainyard.errors import DataError
from trainyard.sharding.uploads import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from trainyard.sharding import ShardingResult
    from trainyard.sharding.objects import ObjectHead

TEXTS = [f"{at} " + "x" * 5_000 for at in range(100)] + [f"{at}" for at in range(20_000)]
"""Long rows first: the shards that are written directly are uneven, and are divided again."""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("trainyard.sharding.shard_set.PARTS_BYTES", 1_000)
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "t.parquet", row_group_size=1_000)
    return tmp_path / "t.parquet"


def sharded(store: Store, source: Path, **settings: Any) -> ShardingResult:
    return store.shard(source, text_column="text", num_shards=4, **settings)


def content(store: Store) -> dict[str, str]:
    return {each.uri: each.etag for each in store.list("s3://bucket/")}


def sizes(store: Store) -> dict[str, int]:
    return {each.uri: each.size for each in store.list("s3://bucket/")}


class OvertakenRun(Store):
    """A store on which another run shards the same source before this one reads a draft back."""

    __slots__ = ("other_run", "results")

    def __init__(self, root: Path, other_run: Callable[[], ShardingResult]) -> None:
        super().__init__(root)
        object.__setattr__(self, "other_run", other_run)
        object.__setattr__(self, "results", [])

    def open(self, uri: str, *, etag: str | None = None) -> Any:
        if f"/{UNDER_WAY}/" in uri and not self.results:
            self.results.append(self.other_run())
        return super().open(uri, etag=etag)


class Keeping(Store):
    """A store that deletes nothing, as if the process were killed before it does."""

    __slots__ = ()

    def delete(self, uris: Sequence[str]) -> None:
        assert uris


class Blind(Store):
    """A store as a run saw it that began before another one had stored anything, and is killed after some puts."""

    __slots__ = ("left",)

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        object.__setattr__(self, "left", left)

    def head(self, uri: str) -> ObjectHead | None:  # noqa: ARG002  # the interface
        return None

    def list(self, prefix: str) -> Iterator[ObjectHead]:  # noqa: ARG002  # the interface
        return iter(())

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        super().put_file(path, uri, sha256=sha256)
        object.__setattr__(self, "left", self.left - 1)
        if self.left == 0:
            raise OSError("killed")


@pytest.mark.parametrize("other", [Store, Keeping], ids=["drafts deleted", "drafts kept"])
@pytest.mark.parametrize("checksums", [True, False], ids=["digests", "sizes"])
def test_a_run_that_another_overtakes_ends_with_the_same_data_set(
    tmp_path: Path, source: Path, other: type[Store], checksums: bool
) -> None:
    root = tmp_path / "store"
    store = OvertakenRun(root, lambda: sharded(other(root), source, checksums=checksums))
    result = sharded(store, source, checksums=checksums)

    assert result.index == store.results[0].index
    assert Counter(store.texts(result)) == Counter(text.encode() for text in TEXTS)
    whole = Store(tmp_path / "whole")
    sharded(whole, source, checksums=checksums)
    assert sizes(store) == sizes(whole)


def test_a_source_that_changes_damages_no_data_set_of_another_run(
    tmp_path: Path, source: Path
) -> None:
    store = Store(tmp_path / "store")
    sharded(store, source)
    whole = content(store)

    class Changing(Blind):
        """A store that is first listed after the run was planned; the source changes then."""

        __slots__ = ()

        def list(self, prefix: str) -> Iterator[ObjectHead]:
            pq.write_table(pa.table({"text": TEXTS[::-1]}), source, row_group_size=1_000)
            return super().list(prefix)

    with pytest.raises(DataError, match="changed while it was read"):
        sharded(Changing(store.root, 10**6), source)

    assert {uri: content(store)[uri] for uri in whole} == whole


def test_drafts_that_cannot_be_deleted_fail_no_run(
    tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Guarded(Store):
        __slots__ = ()

        def delete(self, uris: Sequence[str]) -> None:
            raise PermissionError(uris[0])

    result = sharded(Guarded(tmp_path / "store"), source)

    assert result.index.num_rows == len(TEXTS)
    assert "drafts of shards remain" in caplog.text


@pytest.mark.parametrize("left", [1, 3, 8])
def test_a_run_killed_beside_a_finished_one_damages_nothing(
    tmp_path: Path, source: Path, left: int
) -> None:
    store = Store(tmp_path / "store")
    result = sharded(store, source)
    whole = content(store)

    with pytest.raises(OSError, match="killed"):
        sharded(Blind(store.root, left), source)

    assert {uri: content(store)[uri] for uri in whole} == whole
    again = sharded(store, source)
    assert (again.uploaded, again.index) == (0, result.index)
    assert content(store) == whole, "the next run deletes the drafts of the killed one"
