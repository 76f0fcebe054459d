"""A sample has a share of each split, whole rows of it, and never a row of another split."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.test_parts import shard_in_parts, table_files
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardSettings
from trainyard.sharding.split_rule import NOT_SAMPLED, SPLITS, SplitRule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store

SHARES = {"validation_fraction": 0.2, "test_fraction": 0.1}


def texts_file(folder: Path, *, num_rows: int) -> Path:
    path = folder / "texts.parquet"
    pq.write_table(pa.table({"text": [f"document {at}" for at in range(num_rows)]}), path)
    return path


def rows_by_split(store: Store, result: Any, *, is_text: bool) -> dict[str, Counter[Any]]:
    read = store.texts if is_text else store.table
    return {split: Counter(read(result, split)) for split in SPLITS}


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_each_split_has_this_share_of_its_rows(fraction: float) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    whole = SplitRule(**SHARES).assign(hashes)
    sample = SplitRule(**SHARES, sample_fraction=fraction).assign(hashes)

    assert set(whole) == {0, 1, 2}
    for number in range(len(SPLITS)):
        kept = sample[whole == number]
        assert set(kept) <= {number, NOT_SAMPLED}
        num_kept = int((kept == number).sum())
        deviation = np.sqrt(len(kept) * fraction * (1 - fraction))
        assert abs(num_kept - fraction * len(kept)) < 5 * deviation


@pytest.mark.parametrize("is_text", [True, False], ids=["tokens", "columns"])
def test_a_smaller_sample_is_part_of_a_larger_one_in_the_same_splits(
    tmp_path: Path, store: Store, is_text: bool
) -> None:
    source = texts_file(tmp_path, num_rows=2_000) if is_text else table_files(tmp_path / "in")
    settings = {**SHARES, "text_column": "text" if is_text else None}
    fractions = (1.0, 0.5, 0.2)
    found = [
        rows_by_split(store, store.shard(source, **settings, sample_fraction=each), is_text=is_text)
        for each in fractions
    ]

    for (more, fewer), fraction in zip(
        ((found[0], found[1]), (found[1], found[2])), fractions[1:], strict=True
    ):
        for split in SPLITS:
            assert 0 < fewer[split].total() < more[split].total()
            assert fewer[split] <= more[split]
        share = sum(fewer[s].total() for s in SPLITS) / sum(found[0][s].total() for s in SPLITS)
        assert share == pytest.approx(fraction, abs=0.05)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_parts_sample_the_rows_that_one_process_does(
    tmp_path: Path, store: Store, num_parts: int
) -> None:
    source = table_files(tmp_path / "in")
    settings = {"target_column": "label", "sample_fraction": 0.3, "num_shards": 3}
    whole = store.shard(source, **settings)
    parts = shard_in_parts(store, source, num_parts=num_parts, **settings)

    for split in SPLITS:
        assert Counter(store.table(parts, split)) == Counter(store.table(whole, split))


def test_a_whole_data_set_keeps_its_address_and_a_sample_has_its_own(
    tmp_path: Path, store: Store
) -> None:
    source = table_files(tmp_path / "in")
    whole, sample = store.shard(source), store.shard(source, sample_fraction=0.5)

    assert "sample_fraction" not in whole.index.settings
    assert sample.index.settings["sample_fraction"] == 0.5
    assert whole.uri != sample.uri
    assert store.shard(source, sample_fraction=1.0).uri == whole.uri


def test_bad_rows_are_compared_with_all_rows_that_were_read(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"text": "row {at}"}}\n' for at in range(1_000)) + "not JSON\n" * 5)
    settings = {"text_column": "text", "max_bad_row_fraction": 0.008}

    result = store.shard(path, **settings, sample_fraction=0.2)

    assert result.index.bad_rows["count"] == 5
    assert result.index.bad_rows["fraction"] == pytest.approx(0.005, rel=0.2)


def test_a_sample_without_rows_is_refused_with_its_remedy(tmp_path: Path, store: Store) -> None:
    with pytest.raises(DataError, match=r"(?s)the sample has no rows.*or raise sample_fraction"):
        store.shard(texts_file(tmp_path, num_rows=5), text_column="text", sample_fraction=1e-9)


def test_an_empty_sample_beside_a_bad_row_is_refused_as_empty(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "row"}\nnot JSON\n')
    with pytest.raises(DataError, match="the sample has no rows"):
        store.shard(path, text_column="text", sample_fraction=1e-9)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5])
def test_an_impossible_share_is_refused(fraction: float) -> None:
    with pytest.raises(SpecError, match="sample_fraction"):
        ShardSettings(sample_fraction=fraction)
