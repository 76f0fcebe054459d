"""The promises of a sharding run: stable, balanced, repeatable, complete or absent."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from tests.sharding.conftest import DESTINATION, Store
from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardSettings, Source
from trainyard.sharding.csv_types import MISSING
from trainyard.sharding.run import shard_dataset

EACH_EXAMPLE = hypothesis_settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WORDS = st.lists(st.text("abcdef \u00e9", min_size=1, max_size=30), min_size=1, max_size=80)


def write_table(path: Path, values: list[str]) -> Path:
    pq.write_table(pa.table({"text": values, "at": range(len(values))}), path)
    return path


@EACH_EXAMPLE
@given(values=WORDS, num_shards=st.integers(1, 5), validation=st.sampled_from([0.0, 0.3]))
def test_every_row_is_in_exactly_one_shard(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], num_shards: int, validation: float
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    store = Store(folder / "store")
    path = write_table(folder / "t.parquet", values)
    wanted = {"num_shards": num_shards, "test_fraction": 0.0, "validation_fraction": validation}
    try:
        result = store.shard(path, text_column="text", **wanted)
    except DataError as error:
        if "row(s) for" not in str(error):  # too few rows for the shards is an answer
            raise
        return
    assert Counter(store.texts(result)) == Counter(value.encode() for value in values)


def write_documents(path: Path, documents: list[str]) -> Path:
    table = pa.table({"at": range(len(documents)), "text": documents})
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            with pa.ipc.new_stream(path, table.schema) as file:
                file.write_table(table)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        case ".csv":
            with path.open("w", newline="") as stream:
                writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
                writer.writerows([table.column_names, *enumerate(documents)])
    return path


DOCUMENTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
        lambda text: text not in MISSING
    ),
    max_size=40,
)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv"])
@EACH_EXAMPLE
@given(documents=DOCUMENTS)
def test_every_document_arrives_once_and_in_one_split(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], suffix: str
) -> None:
    folder = tmp_path_factory.mktemp("documents")
    store = Store(folder / "store")
    every = [*documents, *documents[:3], *(f"anchor {at}" for at in range(150))]
    path = write_documents(folder / f"t.{suffix}", every)
    result = store.shard(path, text_column="text")
    by_split = [Counter(store.texts(result, split)) for split in result.index.splits]
    assert sum(by_split, Counter()) == Counter(text.encode() for text in every)
    assert sum(map(len, by_split)) == len(set(every))


@EACH_EXAMPLE
@given(values=WORDS, added=WORDS)
def test_a_row_keeps_its_split_when_data_is_added(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], added: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    store = Store(folder / "store")
    anchors = [f"row {at}" for at in range(60)]
    before = store.shard(
        write_table(folder / "before.parquet", anchors + values), text_column="text"
    )
    after = store.shard(
        write_table(folder / "after.parquet", added + anchors + values), text_column="text"
    )
    for split in ("train", "validation", "test"):
        assert Counter(store.texts(before, split)) <= Counter(store.texts(after, split))
    sides = [set(store.texts(after, split)) for split in ("train", "validation", "test")]
    assert not (sides[0] & sides[1])
    assert not (sides[0] & sides[2])
    assert not (sides[1] & sides[2])


def test_table_rows_keep_their_split_when_a_column_widens(tmp_path: Path, store: Store) -> None:
    whole = {"a": list(range(300)), "b": ["x", "y", "z"] * 100}
    pq.write_table(pa.table(whole), tmp_path / "before.parquet")
    wider = {"a": [*map(float, range(300)), 0.5, None], "b": [*whole["b"], "new", None]}
    pq.write_table(pa.table(wider), tmp_path / "after.parquet")
    before = store.shard(tmp_path / "before.parquet")
    after = store.shard(tmp_path / "after.parquet")
    for split in ("train", "validation", "test"):
        assert set(store.table(before, split)) <= set(store.table(after, split))


def test_same_input_gives_the_same_bytes(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    first = store.shard(tmp_path / "t.parquet", text_column="text")
    second = Store(tmp_path / "other").shard(tmp_path / "t.parquet", text_column="text")
    assert first.index == second.index


def test_second_run_uploads_nothing(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    first = store.shard(tmp_path / "t.parquet")
    second = store.shard(tmp_path / "t.parquet")
    assert first.uploaded > 0
    assert (second.uploaded, second.uploaded_bytes) == (0, 0)
    assert second.index == first.index


def test_other_content_or_settings_go_elsewhere(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    uris = {
        store.shard(tmp_path / "t.parquet").uri,
        store.shard(tmp_path / "t.parquet", num_shards=3).uri,
    }
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(501)])
    uris.add(store.shard(tmp_path / "t.parquet").uri)
    assert len(uris) == 3


class BrokenObjects(Store):
    """A store that fails at the n-th put."""

    __slots__ = ("left",)

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        object.__setattr__(self, "left", left)

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        object.__setattr__(self, "left", self.left - 1)
        if self.left < 0:
            raise OSError("the network is gone")
        super().put_file(path, uri, sha256=sha256)


@pytest.mark.parametrize("num_puts", [0, 1, 3, 5])
def test_crash_leaves_no_index_and_the_retry_sends_the_rest(tmp_path: Path, num_puts: int) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    broken = BrokenObjects(tmp_path / "store", num_puts)
    with pytest.raises(OSError, match="the network is gone"):
        broken.shard(tmp_path / "t.parquet", num_shards=4)
    left = [head.uri for head in broken.list("s3://bucket/")]
    assert len(left) == num_puts
    assert not any(uri.endswith("index.json") for uri in left)

    result = Store(tmp_path / "store").shard(tmp_path / "t.parquet", num_shards=4)
    assert result.reused == num_puts
    whole = Store(tmp_path / "whole").shard(tmp_path / "t.parquet", num_shards=4)
    assert result.index == whole.index
    assert result.uploaded + result.reused == whole.uploaded


def test_retry_replaces_an_object_of_other_content(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    whole = store.shard(tmp_path / "t.parquet")
    store._path(f"{whole.uri}/index/index.json").unlink()
    damaged = f"{whole.uri}/train/shard-00001.bin"
    (tmp_path / "junk").write_bytes(b"junk")
    store.put_file(tmp_path / "junk", damaged, sha256="0")
    result = store.shard(tmp_path / "t.parquet")
    assert result.uploaded == 2  # the damaged shard and the index
    assert len(store.table(result)) == 500


def test_work_folder_is_left_empty(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(50)])
    shard_dataset(
        Source(uri=str(tmp_path / "t.parquet")),
        ShardSettings(num_shards=1),
        store,
        destination=DESTINATION,
        work_dir=tmp_path / "work",
    )
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("is_sorted", [False, True], ids=["mixed", "long-runs-of-duplicates"])
def test_large_source_written_straight_into_shards_is_balanced_too(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, is_sorted: bool
) -> None:
    monkeypatch.setattr("trainyard.sharding.shard_set.PARTS_BYTES", 1_000)
    values = np.random.default_rng(0).integers(0, 10 if is_sorted else 10**9, 200_000)
    if is_sorted:
        values.sort()
    pq.write_table(pa.table({"a": values}), tmp_path / "t.parquet")
    held_out = {"validation_fraction": 0.2, "test_fraction": 0.0}
    if is_sorted:
        held_out = {"validation_fraction": 0.0, "test_fraction": 0.0}
    result = store.shard(tmp_path / "t.parquet", num_shards=8, **held_out)
    for split in result.index.splits.values():
        rows = [shard.rows for shard in split.shards]
        assert max(rows) <= 1.1 * min(rows)
    assert len(result.index.splits["train"].shards) == 8
    assert sorted(row[0] for row in store.table(result)) == sorted(values.tolist())
    names = {head.uri.rpartition("/")[2] for head in store.list(f"{result.uri}/train/")}
    assert len(names) == 8


def test_uneven_source_is_cut_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts first, short ones after: what was planned from the first half does not hold."""
    monkeypatch.setattr("trainyard.sharding.shard_set.PARTS_BYTES", 1_000)
    long = [f"{at} " + "x" * 5_000 for at in range(200)]
    short = [f"{at}" for at in range(60_000)]
    write_table(tmp_path / "t.parquet", long + short)
    result = store.shard(tmp_path / "t.parquet", text_column="text", num_shards=6)
    tokens = [shard.num_tokens or 0 for shard in result.index.splits["train"].shards]
    assert len(tokens) == 6
    assert max(tokens) <= 1.1 * min(tokens)
    assert Counter(store.texts(result)) == Counter(text.encode() for text in long + short)
    assert len(list(store.list(f"{result.uri}/train/"))) == 6


def test_statistics_are_those_of_the_train_split(tmp_path: Path, store: Store) -> None:
    values = [None if at % 11 == 0 else 1e9 + at % 13 for at in range(5_000)]
    pq.write_table(pa.table({"a": values, "row": range(5_000)}), tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet")
    train = [row[0] for row in store.table(result, "train") if row[0] is not None]
    column = (result.index.schema or ())[0]
    assert column.mean == pytest.approx(np.mean(train), rel=1e-12)
    assert column.std == pytest.approx(np.std(train), rel=1e-6)


@pytest.mark.parametrize("num_parts", [0, 3])
def test_statistics_are_those_of_the_finite_values(
    tmp_path: Path, store: Store, num_parts: int
) -> None:
    rng = np.random.default_rng(0)
    inf, huge = rng.normal(size=2000), rng.normal(size=2000)
    inf[:40], inf[40:60], inf[60:90] = np.inf, -np.inf, np.nan
    huge[:10], huge[10:20] = 1e200, -1e200
    for at in range(4):
        rows = slice(at * 500, at * 500 + 500)
        table = pa.table({"inf": inf[rows], "huge": huge[rows], "never": np.full(500, np.inf)})
        pq.write_table(table, tmp_path / f"{at}.parquet")
    wanted = {"num_shards": 3, "validation_fraction": 0.0, "test_fraction": 0.0}
    if num_parts:
        result = shard_in_parts(store, tmp_path / "*.parquet", num_parts=num_parts, **wanted)
    else:
        result = store.shard(tmp_path / "?.parquet", **wanted)

    text = store._path(f"{result.uri}/index/index.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not valid JSON"))
    found = {column.name: column for column in result.index.schema or ()}
    finite = inf[np.isfinite(inf)]
    assert found["inf"].mean == pytest.approx(finite.mean())
    assert found["inf"].std == pytest.approx(finite.std())
    assert found["inf"].num_infinite == 60
    assert found["huge"].mean == pytest.approx(huge.mean())
    assert found["huge"].std == pytest.approx((huge / 1e190).std() * 1e190)
    assert (found["never"].mean, found["never"].std, found["never"].num_infinite) == (
        None,
        None,
        2000,
    )


def test_unigram_baseline_is_the_validation_loss_of_token_frequencies(
    tmp_path: Path, store: Store
) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at} of the text" for at in range(500)])
    result = store.shard(tmp_path / "t.parquet", text_column="text")
    train = np.concatenate([each["tokens"] for each in store.buffers(result, "train")])
    validation = np.concatenate([each["tokens"] for each in store.buffers(result, "validation")])
    share = (np.bincount(train, minlength=257) + 1) / (len(train) + 257)
    assert result.index.baseline is not None
    assert result.index.baseline["unigram_loss_nats"] == pytest.approx(
        -np.log(share[validation]).mean()
    )


def test_auto_count_is_a_multiple_of_the_readers(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [f"row {at}" for at in range(500)])
    readers = {"instance_count": 2, "processes_per_instance": 2, "num_workers": 2}
    result = store.shard(tmp_path / "t.parquet", num_shards=0, **readers)
    assert len(result.index.splits["train"].shards) == 8


def test_unfitting_count_is_refused_before_reading(tmp_path: Path, store: Store) -> None:
    with pytest.raises(
        SpecError,
        match=r"0 to choose the number automatically, or a multiple of 4 .* for example 4 or 8",
    ):
        store.shard(tmp_path / "missing.csv", num_shards=6, instance_count=4)


def test_python_stdlib_is_a_source(store: Store) -> None:
    result = shard_dataset(
        Source(uri="python-stdlib", max_source_bytes=300_000),
        ShardSettings(instance_count=2),
        store,
        destination=DESTINATION,
    )
    assert 150_000 < sum(split.num_tokens or 0 for split in result.index.splits.values()) < 310_000
    loss = (result.index.baseline or {})["unigram_loss_nats"]
    assert 0 < loss < math.log(257)


def test_whole_python_stdlib_is_large_and_readable() -> None:
    from trainyard.sharding.listing import list_files

    _, files = list_files(Source(uri="python-stdlib"), Store(Path("/nowhere")))
    assert sum(file.size for file in files) > 8_000_000
    assert [file.name for file in files] == sorted(file.name for file in files)
    left_out = {"test", "tests", "site-packages", "__pycache__"}
    assert not any(left_out & set(file.name.split("/")) for file in files)


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ShardSettings().num_shards = 3  # type: ignore[misc]
