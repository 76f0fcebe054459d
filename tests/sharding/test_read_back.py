"""The law of sharding: what readers of other people's find in the source is what the shards hold, each row once.

Sources are read by pandas, and by DuckDB where it is installed (`requirements-dev.txt`); shards by numpy alone.
"""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import lzma
import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.sharding.conftest import Store
from tests.sharding.test_parts import shard_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainyard.sharding import ShardingResult

EXAMPLES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MANY = settings(EXAMPLES, max_examples=300)
READERS = ["pandas", *(["duckdb"] if importlib.util.find_spec("duckdb") else [])]
SUFFIXES = ["parquet", "csv", "jsonl"]
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
UNSPLIT = {"validation_fraction": 0.0, "test_fraction": 0.0, "num_shards": 1}

WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff"),
    min_size=1,
    max_size=12,
).map(lambda word: f"w{word}")  # no number, no missing value, no space at its ends
QUOTED = st.sampled_from(['5" pipe', '"', "a,b", "two\nlines", '""', "\r\n", ";|\t"]).map(
    "w{}x".format
)
KINDS: dict[str, Any] = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-9, 9),
    "float": st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 1e15)
    | st.just(0.5),
    "flag": st.booleans(),
    "word": WORDS | QUOTED,
}
Rows = list[tuple[Any, ...]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[str], Rows]:
    """Return names, kinds and rows of a table; columns lack values, and each has one of its kind in the first row."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    names = [f"{kind}_{at}" for at, kind in enumerate(kinds)]
    first = tuple(draw(KINDS[kind]) for kind in kinds)
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    rows = draw(st.lists(row, max_size=60))
    rows = [each for each in rows if any(value is not None for value in each)]
    # A column of fractions has one: whole numbers alone are another type in text.
    fixed = [0.25 if kind == "float" else value for kind, value in zip(kinds, first, strict=True)]
    return names, kinds, [tuple(fixed), *rows]


def write(path: Path, names: list[str], kinds: list[str], rows: Rows) -> None:
    """Write a table by what is independent of the product: Arrow, pandas and json."""
    content: bytes
    if path.name.endswith("parquet"):
        types = {"whole": pa.int64(), "small": pa.int8(), "float": pa.float64()}
        types |= {"flag": pa.bool_(), "word": pa.string()}
        columns = [
            pa.array([row[at] for row in rows], types[kind]) for at, kind in enumerate(kinds)
        ]
        pq.write_table(pa.table(columns, names=names), path, row_group_size=17)
        return
    if ".csv" in path.name:
        frame = pd.DataFrame([[_spelled(value) for value in row] for row in rows], columns=names)
        content = frame.to_csv(index=False, lineterminator="\n").encode()
    else:
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(COMPRESSIONS.get(path.suffix, bytes)(content))


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_source(path: Path, reader: str, names: list[str], kinds: list[str]) -> Counter[Any]:
    """Return the rows that another reader finds, all as text so that it guesses no types."""
    if path.name.endswith("parquet"):
        if reader == "duckdb":
            import duckdb

            rows = duckdb.sql(f"SELECT * FROM read_parquet('{path}')").fetchall()  # noqa: S608
        else:
            frame = pd.read_parquet(path, dtype_backend="pyarrow")
            rows = list(
                zip(*(frame[name].array._pa_array.to_pylist() for name in names), strict=True)
            )
        return Counter(map(_canonical, rows))
    if ".jsonl" in path.name:
        content = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}.get(
            path.suffix, bytes
        )(path.read_bytes())
        parsed = [json.loads(line) for line in content.splitlines()]
        return Counter(_canonical([row[name] for name in names]) for row in parsed)
    if reader == "duckdb" and path.suffix in {".csv", ".gz"}:
        import duckdb

        options = "all_varchar=true, header=true, quote='\"', delim=',', escape='\"'"
        query = f"SELECT * FROM read_csv('{path}', {options})"  # noqa: S608
        texts = [[value or "" for value in row] for row in duckdb.sql(query).fetchall()]
    else:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False)
        texts = frame.to_numpy().tolist()
    return Counter(
        _canonical([_parsed(text, kind) for text, kind in zip(row, kinds, strict=True)])
        for row in texts
    )


def _parsed(text: str, kind: str) -> Any:
    if text == "":
        return None
    readers = {"whole": int, "small": int, "float": float, "flag": lambda each: each == "true"}
    return readers.get(kind, str)(text)


def _canonical(row: Any) -> tuple[Any, ...]:
    return tuple(None if isinstance(value, float) and math.isnan(value) else value for value in row)


def read_shards(store: Store, result: ShardingResult, split: str | None = None) -> Counter[Any]:
    names = [column.name for column in result.index.schema or ()]
    order = sorted(range(len(names)), key=names.__getitem__)
    return Counter(tuple(row[at] for at in order) for row in store.table(result, split))


def sorted_columns(rows: Counter[Any], names: list[str]) -> Counter[Any]:
    order = sorted(range(len(names)), key=names.__getitem__)
    found: Counter[Any] = Counter()
    for row, count in rows.items():
        found[tuple(row[at] for at in order)] += count
    return found


def check_every_row_arrives_once(
    folder: Path,
    table: tuple[list[str], list[str], Rows],
    suffix: str,
    compression: str,
    reader: str,
) -> None:
    names, kinds, rows = table
    store = Store(folder / "store")
    path = folder / f"t.{suffix}{'' if suffix == 'parquet' else compression}"
    write(path, names, kinds, rows)
    expected = sorted_columns(read_source(path, reader, names, kinds), names)
    assert expected.total() == len(rows)
    assert read_shards(store, store.shard(path, **UNSPLIT)) == expected


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("suffix", SUFFIXES)
@EXAMPLES
@given(table=tables(), compression=st.sampled_from(sorted(COMPRESSIONS)))
def test_every_row_of_any_table_arrives_once(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[str], list[str], Rows],
    suffix: str,
    compression: str,
    reader: str,
) -> None:
    folder = tmp_path_factory.mktemp("law")
    check_every_row_arrives_once(folder, table, suffix, compression, reader)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("suffix", SUFFIXES)
@MANY
@given(table=tables(), compression=st.sampled_from(sorted(COMPRESSIONS)))
def test_every_row_of_many_tables_arrives_once(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[str], list[str], Rows],
    suffix: str,
    compression: str,
    reader: str,
) -> None:
    folder = tmp_path_factory.mktemp("law")
    check_every_row_arrives_once(folder, table, suffix, compression, reader)


CHANGES = ["reorder", "append", "rename", "recompress", "columns", "format", "parts"]


def changed(
    change: str, folder: Path, table: tuple[list[str], list[str], Rows], generator: random.Random
) -> tuple[Path, tuple[list[str], list[str], Rows]]:
    """Return the table after a change, and the file that it is written to."""
    names, kinds, rows = table
    rows = [*rows]
    if change == "reorder":
        generator.shuffle(rows)
    if change == "append":
        rows += [(*rows[0][:-1], 5000 + at) for at in range(40)]
    if change == "columns":
        order = generator.sample(range(len(names)), len(names))
        names, kinds = [names[at] for at in order], [kinds[at] for at in order]
        rows = [tuple(row[at] for at in order) for row in rows]
    files = {"rename": "other name.csv", "recompress": "after.csv.gz", "format": "after.parquet"}
    return folder / files.get(change, "after.csv"), (names, kinds, rows)


@pytest.mark.parametrize("change", CHANGES)
@settings(EXAMPLES, max_examples=5)
@given(table=tables(), seed=st.integers(0, 2**32))
def test_a_row_stays_in_its_split(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[str], list[str], Rows],
    change: str,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("law")
    store = Store(folder / "store")
    names, kinds, rows = table
    names, kinds = [*names, "id"], [*kinds, "small"]
    rows = [(*row, at) for at, row in enumerate(rows)]
    # Anchors fill each split, and hold fractions, so that no column changes its type by what is appended.
    anchors = [(*rows[0][:-1], 1000 + at) for at in range(150)]
    rows = [(*row[:-1], row[-1]) for row in (*anchors, *rows)]
    kinds[-1] = "whole"
    write(folder / "before.csv", names, kinds, rows)
    before = store.shard(folder / "before.csv")

    path, table = changed(change, folder, (names, kinds, rows), random.Random(seed))  # noqa: S311
    write(path, *table)
    if change == "parts":
        half = len(rows) // 2
        (folder / "parts").mkdir()
        for number, own in enumerate((rows[:half], [rows[0], *rows[half:]])):
            write(folder / "parts" / f"{number}.parquet", names, kinds, own)
        after = shard_in_parts(store, folder / "parts", num_parts=2, num_shards=2)
    else:
        after = store.shard(path)

    for split in ("train", "validation", "test"):
        mine, theirs = read_shards(store, before, split), read_shards(store, after, split)
        assert mine <= theirs
        if change not in {"append", "parts"}:
            assert mine == theirs
