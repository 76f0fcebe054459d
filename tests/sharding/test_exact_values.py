"""Whole numbers of 64 bits arrive unchanged, and distinct rows have distinct hashes."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.test_parts import shard_in_parts, sharded
from trainyard.errors import DataError
from trainyard.sharding.row_hash import RowHasher, category_bits
from trainyard.sharding.split_rule import SplitRule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding import ShardingResult

FIRST_ID = 1_790_000_000_000_000_001
IDS = [FIRST_ID + at for at in range(600)]
EXTREMES = [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 0, -1]


def write(folder: Path, ids: list[int | None], suffix: str, *, num_files: int = 4) -> Path:
    """Write files of two columns, `id` and its last digits as text."""
    folder.mkdir()
    per_file = -(-len(ids) // num_files)
    for number in range(num_files):
        own = ids[number * per_file : (number + 1) * per_file]
        words = [f"w{0 if each is None else each % 7}" for each in own]
        path = folder / f"{number}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table({"id": pa.array(own, pa.int64()), "word": words}), path)
        elif suffix == "csv":
            rows = [f"{'' if i is None else i},{word}" for i, word in zip(own, words, strict=True)]
            path.write_text("\n".join(["id,word", *rows]) + "\n")
        else:
            rows = [json.dumps({"id": i, "word": w}) for i, w in zip(own, words, strict=True)]
            path.write_text("\n".join(rows) + "\n")
    return folder


def ids_of(store: Store, result: ShardingResult) -> Counter[Any]:
    return Counter(row[0] for row in store.table(result))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("missing", [[], [None], [None] * 300], ids=["all", "one", "many"])
@pytest.mark.parametrize("num_parts", [0, 3], ids=["one-process", "parts"])
def test_ids_beyond_53_bits_arrive_unchanged(
    tmp_path: Path, store: Store, suffix: str, missing: list[None], num_parts: int
) -> None:
    ids = [*IDS, *EXTREMES, *missing]
    source = write(tmp_path / "in", ids, suffix)
    result = sharded(store, source, num_parts)
    assert ids_of(store, result) == Counter(ids)
    assert (result.index.schema or ())[0].dtype == "int64"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_unsigned_ids_arrive_unchanged(tmp_path: Path, store: Store, suffix: str) -> None:
    ids = [at * 10**16 for at in range(1000)]
    result = store.shard(write(tmp_path / "in", [*ids, 2**64 - 1], suffix))
    assert ids_of(store, result) == Counter([*ids, 2**64 - 1])
    assert (result.index.schema or ())[0].dtype == "uint64"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize(
    "late", [2**64, "0.5", [2**64 - 1, -1]], ids=["beyond-64-bits", "fraction", "both-ends"]
)
def test_whole_numbers_that_no_type_holds_are_refused(
    tmp_path: Path, store: Store, suffix: str, num_parts: int, late: Any
) -> None:
    source = write(tmp_path / "in", IDS, suffix, num_files=1)
    row = "{},a\n" if suffix == "csv" else '{{"id": {}, "word": "a"}}\n'
    with (source / f"0.{suffix}").open("a") as stream:
        for value in late if isinstance(late, list) else [late]:
            stream.write(row.format(value))
    with pytest.raises(
        DataError,
        match="a column has integers that no numeric type can represent together with its other values",
    ) as caught:
        sharded(store, source, num_parts)
    assert "'id'" in str(caught.value)
    assert "ignore_columns" in str(caught.value)


def test_decimals_without_a_fraction_are_whole_numbers(tmp_path: Path, store: Store) -> None:
    values = [Decimal(each) for each in IDS] + [None]
    pq.write_table(pa.table({"id": pa.array(values, pa.decimal128(38, 0))}), tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet")
    assert ids_of(store, result) == Counter([*IDS, None])
    pq.write_table(
        pa.table({"id": pa.array([Decimal(10**20)], pa.decimal128(38, 0))}), tmp_path / "t.parquet"
    )
    with pytest.raises(
        DataError,
        match="a column has integers that no numeric type can represent together with its other values",
    ):
        store.shard(tmp_path / "t.parquet", num_shards=1, validation_fraction=0, test_fraction=0)


def hashes_of(columns: dict[str, np.ndarray]) -> np.ndarray:
    hasher = RowHasher()
    hasher.start(len(next(iter(columns.values()))))
    for name, values in columns.items():
        hasher.add_numbers(name, values)
    return hasher.finish().copy()


@pytest.mark.parametrize(("num_columns", "num_values"), [(64, 2), (32, 2), (16, 4), (8, 16)])
def test_rows_of_small_whole_numbers_have_hashes_of_their_own(
    num_columns: int, num_values: int
) -> None:
    rng = np.random.default_rng(0)
    table = np.unique(rng.integers(0, num_values, (200_000, num_columns), np.int8), axis=0)
    hashes = hashes_of({f"c{at}": table[:, at].copy() for at in range(num_columns)})
    assert len(np.unique(hashes)) == len(table)
    rule = SplitRule(validation_fraction=0.05, test_fraction=0.01)
    shares = np.bincount(rule.assign(hashes), minlength=3) / len(table)
    assert shares[1:] == pytest.approx([0.05, 0.01], abs=4 * (0.05 / len(table)) ** 0.5)


def test_ids_that_one_float_stands_for_have_hashes_of_their_own() -> None:
    ids = np.arange(2**62, 2**62 + 10_000)
    assert len(np.unique(hashes_of({"id": ids}))) == 10_000
    assert len(np.unique(hashes_of({"id": ids.astype(np.uint64) * np.uint64(3)}))) == 10_000


def test_hash_depends_on_values_and_not_on_their_type() -> None:
    values = [0, 1, -7, 2**53, 2**62]
    whole = hashes_of({"a": np.array(values)})
    assert (hashes_of({"a": np.array(values, np.float64)}) == whole).all()
    hasher = RowHasher()
    for spelled in (str, lambda value: f"{value}.0"):
        hasher.start(len(values))
        hasher.add_bits("a", category_bits([spelled(value) for value in values]))
        assert (hasher.finish() == whole).all()
    hasher.start(2)
    hasher.add_bits("a", category_bits([str(2**53 + 1), str(2**64 - 1)]))
    assert (hasher.finish()[:1] == hashes_of({"a": np.array([2**53 + 1])})).all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_row_keeps_its_split_in_another_order_of_columns(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    columns = {"a": list(range(400)), "b": [f"w{at % 9}" for at in range(400)]}
    splits = []
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        table = pa.table({name: columns[name] for name in names})
        path = tmp_path / f"{number}.{suffix}"
        if suffix == "csv":
            rows = zip(*(columns[name] for name in names), strict=True)
            path.write_text(
                "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)])
            )
        else:
            pq.write_table(table, path)
        result = store.shard(path)
        order = [column.name for column in result.index.schema or ()]
        splits.append(
            {
                split: {row[order.index("a")] for row in store.table(result, split)}
                for split in ("train", "validation", "test")
            }
        )
    assert splits[0] == splits[1]


def test_a_row_keeps_its_split_when_a_column_turns_into_text(tmp_path: Path, store: Store) -> None:
    rows = [f"{at},{at / 4}\n" for at in range(400)]
    (tmp_path / "before.csv").write_text("a,b\n" + "".join(rows))
    (tmp_path / "after.csv").write_text("a,b\n" + "none of it,1\n" * 60 + "".join(rows))
    before, after = store.shard(tmp_path / "before.csv"), store.shard(tmp_path / "after.csv")
    assert [column.dtype for column in after.index.schema or ()] == ["int32", "float64"]
    for split in ("train", "validation", "test"):
        kept = {str(row[0]) for row in store.table(before, split)}
        assert kept <= {row[0] for row in store.table(after, split)}


def test_decimals_are_the_nearest_floats(tmp_path: Path, store: Store) -> None:
    values = [None, *(Decimal(at) / 100 for at in range(900))]
    table = pa.table({"price": pa.array(values, pa.decimal128(38, 2))})
    pq.write_table(table, tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet")
    assert ids_of(store, result) == Counter(v if v is None else float(v) for v in values)


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (
            pa.array([Decimal(12345678901234567001)] * 9, pa.decimal128(38, 9)),
            "12345678901234567001",
        ),
        (pa.array([1_700_000_000_000_000_007] * 9, pa.timestamp("ns")), "1700000000000000007 ns"),
    ],
    ids=["decimal", "nanoseconds"],
)
def test_values_that_no_float_keeps_are_refused(
    tmp_path: Path, store: Store, values: pa.Array, got: str
) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=rf"where: column 'x'\s+got: {got}"):
        store.shard(tmp_path / "t.parquet")


def test_times_in_whole_microseconds_are_read_from_nanoseconds(
    tmp_path: Path, store: Store
) -> None:
    first = 1_700_000_000_000_001_000
    counts = [first + 1000 * at for at in range(600)]
    times = pa.array(counts, pa.timestamp("ns", tz="UTC"))
    pq.write_table(pa.table({"x": times}), tmp_path / "t.parquet")
    assert len(ids_of(store, store.shard(tmp_path / "t.parquet"))) == 600


def test_decimals_of_one_float_have_hashes_of_their_own(tmp_path: Path, store: Store) -> None:
    step = Decimal(1).scaleb(-18)
    values = [Decimal(1_234_567) + at * step for at in range(1, 901)]
    table = pa.table({"x": pa.array([*values, None], pa.decimal128(38, 18))})
    pq.write_table(table, tmp_path / "t.parquet")

    result = store.shard(tmp_path / "t.parquet", validation_fraction=0.2)

    assert ids_of(store, result) == Counter({1_234_567.0: 900, None: 1})
    assert result.index.splits["validation"].num_rows == pytest.approx(180, abs=50)


def test_decimals_keep_the_split_of_the_same_numbers_in_text(tmp_path: Path, store: Store) -> None:
    values = [Decimal(at) / 64 + 1_000_000 for at in range(900)]
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{value}\n" for value in values))
    pq.write_table(pa.table({"x": pa.array(values, pa.decimal128(38, 18))}), tmp_path / "t.parquet")

    texts, decimals = store.shard(tmp_path / "t.csv"), store.shard(tmp_path / "t.parquet")

    for split in ("train", "validation", "test"):
        assert sorted(store.table(texts, split)) == sorted(store.table(decimals, split))


CODES = ["02100", "2100", "00000", "0", *(f"{at:05d}" for at in range(1900, 2600))]


@pytest.mark.parametrize(
    "first", [CODES, CODES[::-1], ["7"] * 20_100 + CODES], ids=["first", "mixed", "late"]
)
@pytest.mark.parametrize("options", [{}, {"sep": ";"}], ids=["plain", "options"])
@pytest.mark.parametrize("ragged", ["", "1;2;3\n"], ids=["whole", "ragged"])
def test_leading_zeros_of_csv_arrive_unchanged(
    tmp_path: Path,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    first: list[str],
    options: dict[str, str],
    ragged: str,
) -> None:
    rows = "".join(f"{code};{at}\n" for at, code in enumerate(first))
    (tmp_path / "t.csv").write_text("zip;k\n" + rows + ragged)

    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1)

    assert Counter(store.table(result)) == Counter((code, at) for at, code in enumerate(first))
    assert (
        "column 'zip' is read as categories: as numbers its values lose leading zeros"
        in caplog.text
    )


@pytest.mark.parametrize("value", ["0", "0.5", "-0", "00.5", "1e05", "10", "0x1", "-07"])
def test_other_zeros_leave_a_column_numeric(tmp_path: Path, store: Store, value: str) -> None:
    rows = "".join(f"{at / 4},{at}\n" for at in range(900))
    (tmp_path / "t.csv").write_text(f"x,k\n{rows}{value},0\n")

    result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1)

    assert (result.index.schema or ())[0].dtype == "float64"


FLAGS = [("TRUE", "false")[at % 2] for at in range(20_100)]


@pytest.mark.parametrize("late", ["UNKNOWN", "0"])
@pytest.mark.parametrize("options", [{}, {"sep": ";"}], ids=["plain", "options"])
def test_type_of_flags_does_not_depend_on_the_order_of_rows(
    tmp_path: Path, store: Store, options: dict[str, str], late: str
) -> None:
    rows = [f"{flag};{at}\n" for at, flag in enumerate([*FLAGS, late, ""])]
    for name, each in {"last": rows, "first": rows[::-1]}.items():
        (tmp_path / f"{name}.csv").write_text("flag;k\n" + "".join(each))
        result = store.shard(tmp_path / f"{name}.csv", csv_options=options)
        assert Counter(store.table(result)) == Counter(
            (flag or None, at) for at, flag in enumerate([*FLAGS, late, ""])
        )


def test_flags_keep_their_split_when_they_turn_into_text(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at},{flag}\n" for at, flag in enumerate(FLAGS))
    (tmp_path / "before.csv").write_text("k,flag\n" + rows)
    (tmp_path / "after.csv").write_text(f"k,flag\n{rows}-1,UNKNOWN\n")
    before, after = store.shard(tmp_path / "before.csv"), store.shard(tmp_path / "after.csv")
    assert [column.dtype for column in before.index.schema or ()] == ["int64", "uint8"]
    assert [column.dtype for column in after.index.schema or ()] == ["int64", "int32"]
    for split in ("train", "validation", "test"):
        kept = {row[0] for row in store.table(after, split)}
        assert {row[0] for row in store.table(before, split)} == kept - {-1}


def test_codes_in_one_part_alone_are_refused(tmp_path: Path, store: Store) -> None:
    for number in range(4):
        codes = [f"{at:05d}" if number == 0 else str(at) for at in range(2000, 2300)]
        (tmp_path / f"{number}.csv").write_text("zip\n" + "\n".join(codes) + "\n")
    with pytest.raises(DataError, match=r"where: column 'zip'(.|\n)*category_columns"):
        shard_in_parts(store, tmp_path / "*.csv", num_parts=3)
    result = shard_in_parts(store, tmp_path / "*.csv", num_parts=3, category_columns=("zip",))
    assert sum(ids_of(store, result).values()) == 1200
