"""Digests: named in the index, kept for files that did not change, and switched off by the user."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import pytest
import torch

from tests.sharding.test_parts import shard_in_parts, table_files
from tests.sharding.test_run import BrokenObjects
from trainer.data.shard_index import ChannelIndex as TrainersIndex
from trainer.data.table import read_layout
from trainer.data.table_rows import TableRows
from trainyard.sharding import Source
from trainyard.sharding.listing import list_files
from trainyard.sharding.source_digest import algorithm, digests_of, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding.source_files import SourceFile

OFF = {"checksums": False, "num_shards": 6, "target_column": "label"}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass after every file was written."""
    now = time.time_ns()
    monkeypatch.setattr("trainyard.sharding.source_digest.time.time_ns", lambda: now + 3600 * 10**9)


def listed(path: Path, store: Store) -> list[SourceFile]:
    return list_files(Source(uri=str(path)), store)[1]


def test_index_names_what_it_was_made_with(tmp_path: Path, store: Store) -> None:
    source = table_files(tmp_path / "in")
    with_digests = store.shard(source, num_shards=6).index
    assert with_digests.algorithms == {
        "source": algorithm(),
        "shards": "sha256",
        "rows": "column-sum-splitmix64",
    }
    without = store.index(store.shard(source, **OFF))
    assert without.algorithms == {
        "source": "time of change",
        "shards": None,
        "rows": "column-sum-splitmix64",
    }
    assert {shard.sha256 for shard in without.splits["train"].shards} == {None}


def test_data_set_without_checksums_has_the_same_rows(tmp_path: Path, store: Store) -> None:
    source = table_files(tmp_path / "in")
    with_digests = store.shard(source, **{**OFF, "checksums": True})
    without = store.shard(source, **OFF)
    assert without.uri != with_digests.uri
    for split in ("train", "validation", "test"):
        assert store.table(without, split) == store.table(with_digests, split)
    assert store.shard(source, **OFF).uploaded == 0


@pytest.mark.torch
def test_trainer_checks_sizes_of_a_data_set_without_checksums(tmp_path: Path, store: Store) -> None:
    result = store.shard(table_files(tmp_path / "in"), **OFF)
    root = store._path(result.uri)
    index = TrainersIndex.load(root / "index")
    layout = read_layout(
        index, sorted((root / "train").iterdir()), target_column=None, problem="auto"
    )
    rows = TableRows.open(index, "train", root / "train", layout=layout, verify=True)
    assert len(rows[torch.arange(len(rows))][2]) == result.index.splits["train"].num_rows


def test_run_without_checksums_that_was_cut_off_sends_every_shard_again(tmp_path: Path) -> None:
    source = table_files(tmp_path / "in")
    with pytest.raises(OSError, match="the network is gone"):
        BrokenObjects(tmp_path / "store", 3).shard(source, **OFF)
    assert BrokenObjects(tmp_path / "store", 100).shard(source, **OFF).reused == 0


def test_parts_keep_their_checksums(tmp_path: Path, store: Store) -> None:
    source = table_files(tmp_path / "in")
    result = shard_in_parts(store, source, num_parts=3, checksums=False)
    for split in result.index.splits.values():
        for shard in split.shards:
            content = store._path(f"{result.uri}/{shard.file}").read_bytes()
            assert shard.sha256 == hashlib.sha256(content).hexdigest()


def test_source_of_other_times_is_another_without_checksums(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    before = listed(tmp_path / "t.csv", store)
    assert fingerprint(before, checksums=False) == fingerprint(before, checksums=False)
    (tmp_path / "t.csv").unlink()
    (tmp_path / "t.csv").write_text("a\n2\n")
    assert fingerprint(listed(tmp_path / "t.csv", store), checksums=False) != fingerprint(
        before, checksums=False
    )


@pytest.mark.usefixtures("later")
def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    files = listed(tmp_path / "t.csv", store)
    first = digests_of(files, cache=tmp_path / "cache" / "digests")
    (tmp_path / "t.csv").unlink()
    assert digests_of(files, cache=tmp_path / "cache" / "digests") == first


@pytest.mark.parametrize("how", ["written", "replaced", "just-now", "no-cache"])
def test_a_file_that_may_have_changed_is_read_again(
    tmp_path: Path, store: Store, how: str, request: pytest.FixtureRequest
) -> None:
    path, cache = tmp_path / "t.csv", tmp_path / "digests"
    if how != "just-now":
        request.getfixturevalue("later")
    if how == "no-cache":
        cache.mkdir()  # where no database can be
    path.write_text("a\n1\n")
    files = listed(path, store)
    first = digests_of(files, cache=cache)
    if how == "replaced":
        path.unlink()
    path.write_text("a\n2\n")
    if how in {"written", "replaced"}:
        files = listed(path, store)
    assert digests_of(files, cache=cache) != first
