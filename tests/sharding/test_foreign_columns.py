"""Columnar files and arrays as other tools write them: narrow dictionaries, old times, drifting types."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.test_foreign_data import names_by_part
from tests.sharding.test_parts import sharded
from trainyard.errors import DataError
from trainyard.sharding.table_encoder import Categories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.sharding.conftest import Store

ROWS = 400
WHOLE = {"validation_fraction": 0, "test_fraction": 0}


def write_arrow(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=150)
        return
    new = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file
    with new(path, table.schema) as file:
        file.write_table(table, max_chunksize=150)


@pytest.mark.parametrize("suffix", ["arrow", "feather", "parquet"])
@pytest.mark.parametrize(
    ("index", "entries"),
    [
        (pa.int8(), 127),
        (pa.int8(), 128),
        (pa.uint8(), 255),
        (pa.uint8(), 256),
        (pa.uint32(), 9),
        (pa.uint64(), 9),
    ],
    ids=str,
)
def test_missing_values_of_full_dictionaries_stay_missing(
    tmp_path: Path, store: Store, suffix: str, index: pa.DataType, entries: int
) -> None:
    if suffix == "parquet" and pa.types.is_unsigned_integer(index) and index.bit_width > 16:
        index = pa.int64()  # Parquet does not write these
    codes = [None if at % 50 == 0 else entries - 1 - at % entries for at in range(ROWS)]
    known = pa.array([f"v{at}" for at in range(entries)])
    column = pa.DictionaryArray.from_arrays(pa.array(codes, index), known)
    write_arrow(tmp_path / f"t.{suffix}", pa.table({"n": range(ROWS), "c": column}))
    result = store.shard(tmp_path / f"t.{suffix}", max_categories=70_000)
    wanted = [(at, None if code is None else f"v{code}") for at, code in enumerate(codes)]
    assert sorted(store.table(result), key=lambda row: row[0]) == wanted


@pytest.mark.parametrize(("index", "entries"), [(pa.int16(), 2**15), (pa.uint16(), 2**16)], ids=str)
def test_missing_values_of_full_dictionaries_of_16_bits_stay_missing(
    index: pa.DataType, entries: int
) -> None:
    known = pa.array([f"v{at}" for at in range(entries)])
    codes = pa.array([None, entries - 1, None, 0], index)
    found, _ = Categories("c", limit=entries).encode(pa.DictionaryArray.from_arrays(codes, known))
    assert found.tolist() == [-1, entries - 1, -1, 0]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "npy": lambda data: data,
    "npy.gz": gzip.compress,
    "npy.bz2": bz2.compress,
    "npy.xz": lzma.compress,
    "npy.zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def npy_bytes(ids: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, ids)
    return stream.getvalue()


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("shape", [(-1,), (50, 100)], ids=["stream", "rows"])
def test_arrays_are_read_in_every_compression(
    tmp_path: Path, store: Store, suffix: str, shape: tuple[int, ...]
) -> None:
    ids = np.arange(1, 5001, dtype=np.int32)
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(PACKED[suffix](npy_bytes(ids.reshape(shape))))
    result = store.shard(path, vocab_size=50_000, num_shards=1, **WHOLE)
    (buffers,) = store.buffers(result, "train")
    assert buffers["tokens"].tolist() == ids.tolist()


def test_remedy_for_ids_outside_the_vocabulary_is_about_ids(tmp_path: Path, store: Store) -> None:
    np.save(tmp_path / "t.npy", np.arange(5000, dtype=np.int32).reshape(50, 100))
    with pytest.raises(DataError, match="outside the vocabulary") as caught:
        store.shard(tmp_path / "t.npy", vocab_size=100)
    assert "csv" not in (caught.value.next_step or "")
    assert "vocab_size" in (caught.value.next_step or "")


LIST_TYPES = {
    "fixed": pa.list_(pa.int32(), 8),
    "view": pa.list_view(pa.int64()),
    "large view": pa.large_list_view(pa.uint16()),
}


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("kind", LIST_TYPES)
def test_every_kind_of_list_holds_token_ids(
    tmp_path: Path, store: Store, kind: str, suffix: str
) -> None:
    # Arrow does not read missing lists of a fixed size from Parquet.
    has_missing = (kind, suffix) != ("fixed", "parquet")
    rows = [None if has_missing and at % 10 == 9 else [at, *range(7)] for at in range(ROWS)]
    rows[5] = [5, None, *range(6)]
    table = pa.table({"input_ids": pa.array(rows, LIST_TYPES[kind])})
    write_arrow(tmp_path / f"t.{suffix}", table.slice(3))
    settings = {"text_column": "input_ids", "vocab_size": 1000, "max_bad_row_fraction": 0.2}
    result = store.shard(tmp_path / f"t.{suffix}", num_shards=1, **settings, **WHOLE)
    (buffers,) = store.buffers(result, "train")
    found = [row.tolist() for row in np.split(buffers["tokens"], buffers["row_ends"][:-1])]
    assert found == [row for at, row in enumerate(rows) if row and at not in {0, 1, 2, 5}]
    assert result.index.bad_rows["count"] == 1 + 40 * has_missing


def test_first_version_of_feather_is_refused_with_a_remedy(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    with pytest.raises(DataError, match="version 1") as caught:
        store.shard(tmp_path / "t.feather")
    assert "write_feather" in (caught.value.next_step or "")


MOMENTS = {
    "wraps to another year": "2554-07-21T23:34:33",
    "wraps before 1677": "1385-06-10T00:25:27",
    "no end": "9999-12-31T00:00:00",
    "last": "9999-12-31T23:59:59.999999",
    "first": "0001-01-01T00:00:00",
    "microseconds": "2024-01-01T00:00:00.000001",
}


def write_int96(path: Path, times: pa.Array, **columns: Any) -> None:
    """Write times as Hive and Impala do."""
    pq.write_table(
        pa.table({"t": times, **columns}),
        path,
        use_deprecated_int96_timestamps=True,
        store_schema=False,
        row_group_size=150,
    )


@pytest.mark.parametrize("moment", MOMENTS)
def test_old_times_of_parquet_are_exact(tmp_path: Path, store: Store, moment: str) -> None:
    since = dt.datetime.fromisoformat(MOMENTS[moment]) - dt.datetime(1970, 1, 1)  # noqa: DTZ001
    micros = [since // dt.timedelta(microseconds=1), 1_700_000_000_000_000]
    values = [None if at % 7 == 0 else micros[at % 2] for at in range(ROWS)]
    names = [f"c{at % 3}" for at in range(ROWS)]
    times = pa.array(values, pa.timestamp("us"))
    write_int96(tmp_path / "t.parquet", times, c=names, n=range(ROWS))
    found = store.table(store.shard(tmp_path / "t.parquet"))
    wanted = [value if value is None else value / 10**6 for value in values]
    wanted_rows = list(zip(wanted, names, range(ROWS), strict=True))
    assert sorted(found, key=lambda row: row[2]) == wanted_rows


def test_old_times_with_nanoseconds_are_kept_or_refused(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "t.parquet"
    near = pa.array([at * 1001 for at in range(ROWS)], pa.timestamp("ns"))
    write_int96(path, near)
    found = store.table(store.shard(path))
    assert sorted(row[0] for row in found) == [at * 1001 / 10**9 for at in range(ROWS)]
    write_int96(path, pa.array([1_700_000_000_000_000_007] * ROWS, pa.timestamp("ns")))
    with pytest.raises(DataError, match="1700000000000000007 ns") as caught:
        store.shard(path)
    assert "round the column to microseconds" in (caught.value.next_step or "")


def write_drift(folder: Path, first: pa.Array, second: pa.Array, suffix: str = "parquet") -> Path:
    folder.mkdir()
    size, names = len(first), names_by_part(suffix)
    for number, values in enumerate((first, second)):
        numbers = range(number * size, number * size + size)
        write_arrow(folder / names[number], pa.table({"n": numbers, "x": values}))
    return folder


def seconds(unit: str, zone: str | None = None) -> pa.Array:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([at * factor for at in range(ROWS)], pa.timestamp(unit, zone))


NUMBERS = [at % 100 for at in range(ROWS)]
TEXTS = [f"s{at % 5}" for at in range(ROWS)]
QUARTERS = [Decimal(at) / 4 for at in range(ROWS)]
LOSSLESS = {
    "int32 and int64": (pa.array(NUMBERS, pa.int32()), pa.array(NUMBERS, pa.int64())),
    "int64 and int32": (pa.array(NUMBERS, pa.int64()), pa.array(NUMBERS, pa.int32())),
    "uint8 and int8": (pa.array(NUMBERS, pa.uint8()), pa.array(NUMBERS, pa.int8())),
    "uint32 and int64, one missing": (
        pa.array(NUMBERS, pa.uint32()),
        pa.array([None, *NUMBERS[1:]], pa.int64()),
    ),
    "float and double": (
        pa.array([at / 4 for at in range(ROWS)], pa.float32()),
        pa.array([at / 3 for at in range(ROWS)], pa.float64()),
    ),
    "string and large string": (pa.array(TEXTS), pa.array(TEXTS, pa.large_string())),
    "string and view": (pa.array(TEXTS), pa.array(TEXTS, pa.string_view())),
    "string and dictionary": (pa.array(TEXTS), pa.array(TEXTS).dictionary_encode()),
    "ns and us": (seconds("ns"), seconds("us")),
    "ms and ns": (seconds("ms"), seconds("ns")),
    "time zones": (seconds("us", "UTC"), seconds("us", "Europe/Paris")),
    "scales of decimals": (
        pa.array(QUARTERS, pa.decimal128(10, 2)),
        pa.array(QUARTERS, pa.decimal128(12, 3)),
    ),
    "whole and other decimals": (
        pa.array(map(Decimal, NUMBERS), pa.decimal128(10, 0)),
        pa.array(QUARTERS, pa.decimal256(50, 2)),
    ),
}


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.timestamp() if value.tzinfo else value.replace(tzinfo=dt.UTC).timestamp()
    return float(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize("types", LOSSLESS)
def test_types_that_drift_without_loss_are_one_column(
    tmp_path: Path, store: Store, types: str, num_parts: int, suffix: str
) -> None:
    first, second = LOSSLESS[types]
    source = write_drift(tmp_path / "in", first, second, suffix)
    if types == "whole and other decimals" and num_parts:
        with pytest.raises(DataError, match="a column differs between the parts"):
            sharded(store, source, num_parts)
        return
    result = sharded(store, source, num_parts)
    wanted = [plain(value) for value in (*first.to_pylist(), *second.to_pylist())]
    assert sorted(store.table(result), key=lambda row: row[0]) == list(enumerate(wanted))


LOSSY = {
    "int64 and float": (pa.array(NUMBERS), pa.array([0.5] * ROWS)),
    "int64 and uint64": (pa.array(NUMBERS), pa.array(NUMBERS, pa.uint64())),
    "bool and int64": (pa.array([True, False] * (ROWS // 2)), pa.array(NUMBERS)),
    "text and int64": (pa.array(TEXTS), pa.array(NUMBERS)),
    "time and date": (seconds("us"), pa.array(range(ROWS), pa.date32())),
}


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize("types", LOSSY)
def test_types_that_no_column_holds_are_refused(
    tmp_path: Path, store: Store, types: str, num_parts: int, suffix: str
) -> None:
    source = write_drift(tmp_path / "in", *LOSSY[types], suffix)
    with pytest.raises(DataError, match="columns"):
        sharded(store, source, num_parts)


def test_local_time_beside_an_instant_is_refused(tmp_path: Path, store: Store) -> None:
    source = write_drift(tmp_path / "in", seconds("us"), seconds("us", "UTC"))
    with pytest.raises(DataError, match="columns"):
        store.shard(source)


def test_row_keeps_its_split_when_its_type_drifts(tmp_path: Path, store: Store) -> None:
    narrow, wide = pa.array(NUMBERS, pa.int32()), pa.array(NUMBERS, pa.int64())
    splits = []
    for name, first in (("drift", narrow), ("same", wide)):
        result = store.shard(write_drift(tmp_path / name, first, wide))
        splits.append([sorted(store.table(result, split)) for split in result.index.splits])
    assert splits[0] == splits[1]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_column_that_is_empty_in_one_arrow_file_has_the_type_of_the_others(
    tmp_path: Path, store: Store, is_first: bool
) -> None:
    columns = [pa.nulls(ROWS), pa.array(NUMBERS, pa.int32())]
    first, second = columns if is_first else columns[::-1]
    source = write_drift(tmp_path / "in", first, second, "feather")
    values = first.to_pylist() + second.to_pylist()
    found = sorted(store.table(store.shard(source)), key=lambda row: row[0])
    assert found == list(enumerate(values))


def test_lists_of_ids_may_drift(tmp_path: Path, store: Store) -> None:
    for suffix in ("parquet", "feather"):
        rows = [[at, 1] for at in range(ROWS)]
        kinds = (pa.list_(pa.int32()), pa.large_list(pa.int64()))
        source = write_drift(tmp_path / suffix, *(pa.array(rows, kind) for kind in kinds), suffix)
        result = store.shard(source, text_column="x", vocab_size=1000)
        assert result.index.num_rows == 2 * ROWS


class Month(pa.ExtensionType):
    """Number of months, as the periods of pandas: without the type, a column of plain whole numbers."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.month")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Month:
        return cls()


@pytest.fixture(params=[True, False], ids=["registered", "unknown"])
def month(request: pytest.FixtureRequest) -> Iterator[Month]:
    """Yield a type that this process does not know, or knows because a package has registered it."""
    if request.param:
        pa.register_extension_type(Month())
    yield Month()
    if request.param:
        pa.unregister_extension_type("test.month")


def write_months(path: Path, month: Month) -> Path:
    months = pa.ExtensionArray.from_storage(month, pa.array(NUMBERS))
    write_arrow(path, pa.table({"n": range(ROWS), "x": months, "s": TEXTS}))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow"])
def test_extension_type_is_refused_whether_or_not_it_is_registered(
    tmp_path: Path, store: Store, suffix: str, month: Month
) -> None:
    source = write_months(tmp_path / f"t.{suffix}", month)
    with pytest.raises(DataError, match="column's type is not supported") as caught:
        store.shard(source)
    assert (caught.value.where, caught.value.got) == ("column 'x'", "extension<test.month>")
    assert "VARCHAR" in (caught.value.next_step or "")
    assert store.shard(source, ignore_columns=("x",)).index.num_rows == ROWS
    assert store.shard(source, text_column="s", **WHOLE).index.num_rows == ROWS


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_extension_type_of_a_later_file_is_refused(
    tmp_path: Path, store: Store, suffix: str, month: Month
) -> None:
    months = pa.ExtensionArray.from_storage(month, pa.array(NUMBERS))
    source = write_drift(tmp_path / "in", pa.array(NUMBERS), months, suffix)
    with pytest.raises(DataError, match=r"extension<test\.month>"):
        store.shard(source)


EXTENSIONS = {
    "arrow.uuid": pa.array([at.to_bytes(16) for at in range(ROWS)], pa.uuid()),
    "arrow.json": pa.array(["{}"] * ROWS, pa.json_()),
    "arrow.bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1] * ROWS, pa.int8())),
}


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("name", EXTENSIONS)
def test_remedy_for_an_extension_type_is_a_conversion(
    tmp_path: Path, store: Store, name: str, suffix: str
) -> None:
    table = pa.table({"n": range(ROWS), "x": EXTENSIONS[name]})
    write_arrow(tmp_path / f"t.{suffix}", table)
    with pytest.raises(DataError, match=f"extension<{name}>") as caught:
        store.shard(tmp_path / f"t.{suffix}")
    assert "CAST(x AS VARCHAR)" in (caught.value.next_step or "")


@pytest.mark.parametrize("name", ["google:sqlType:datetime", "arrow.r.vctrs"])
def test_annotation_of_a_plain_type_is_no_extension_type(
    tmp_path: Path, store: Store, name: str
) -> None:
    field = pa.field("x", pa.int64(), metadata={"ARROW:extension:name": name, "unit": "m"})
    table = pa.table([pa.array(NUMBERS), pa.array(TEXTS)], pa.schema([field, ("s", pa.string())]))
    write_arrow(tmp_path / "t.feather", table)
    assert store.shard(tmp_path / "t.feather").index.num_rows == ROWS


@pytest.mark.parametrize("suffix", ["arrow", "feather", "parquet"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_column_whose_name_is_not_utf8_is_refused(
    tmp_path: Path, store: Store, suffix: str, is_first: bool
) -> None:
    names = [f"{at}.{suffix}" for at in range(2)]
    for name in names:
        write_arrow(tmp_path / name, pa.table({"price of it": range(ROWS)}))
    odd = names[0 if is_first else 1]
    content = (tmp_path / odd).read_bytes().replace(b"price of it", b"price\xffof it")
    (tmp_path / odd).write_bytes(content)
    with pytest.raises(DataError, match="the name of a column is not UTF-8") as caught:
        store.shard(tmp_path / f"*.{suffix}")
    assert (caught.value.where, caught.value.got) == (odd, r"b'price\xffof it'")


@pytest.mark.parametrize("suffix", ["arrow", "feather", "parquet"])
@pytest.mark.parametrize("text_column", [None, "t"], ids=["table", "text"])
def test_column_named_twice_in_a_later_file_is_refused_unless_ignored(
    tmp_path: Path, store: Store, suffix: str, text_column: str | None
) -> None:
    rows = pa.array(["some text"] * ROWS)
    for name, columns in (("a", ["t", "b"]), ("b", ["t", "b", "b"])):
        table = pa.Table.from_arrays([rows] * len(columns), names=columns)
        write_arrow(tmp_path / f"{name}.{suffix}", table)
    settings = {"text_column": text_column, **WHOLE}
    with pytest.raises(DataError, match="a file has two columns of the same name") as caught:
        store.shard(tmp_path / f"*.{suffix}", **settings)
    assert caught.value.where == f"b.{suffix}"
    result = store.shard(tmp_path / f"*.{suffix}", ignore_columns=("b",), **settings)
    assert result.index.num_rows == 2 * ROWS


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
def test_arrow_file_of_two_that_were_joined_is_refused(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    path = tmp_path / f"t.{suffix}"
    write_arrow(path, pa.table({"n": range(ROWS)}))
    assert store.shard(path, **WHOLE).index.num_rows == ROWS
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(DataError, match="an Arrow file has data after its end") as caught:
        store.shard(path, **WHOLE)
    assert caught.value.where == path.name


def test_arrow_stream_without_end_mark_is_read(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "t.arrow"
    write_arrow(path, pa.table({"n": range(ROWS)}))
    path.write_bytes(path.read_bytes()[:-8])
    assert store.shard(path, **WHOLE).index.num_rows == ROWS
