"""Every format and compression gives every row once."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainyard.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.sharding.conftest import Store

NUM_ROWS = 400
ROWS = [(at, at / 4, ("red", "green", None)[at % 3], at % 2 == 0) for at in range(NUM_ROWS)]
NAMES = ("number", "fraction", "color", "flag")
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSED[".zst"] = zstd


def as_csv(rows: list[tuple[object, ...]]) -> bytes:
    lines = [",".join(NAMES)]
    lines += [",".join("" if value is None else str(value) for value in row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def as_jsonl(rows: list[tuple[object, ...]]) -> bytes:
    return b"".join(json.dumps(dict(zip(NAMES, row, strict=True))).encode() + b"\n" for row in rows)


def as_parquet(path: Path, rows: list[tuple[object, ...]]) -> None:
    columns = list(zip(*rows, strict=True))
    pq.write_table(pa.table([pa.array(each) for each in columns], names=NAMES), path)


def expected() -> list[tuple[object, ...]]:
    return sorted(
        (number, fraction, color or "", int(flag)) for number, fraction, color, flag in ROWS
    )


def found(store: Store, result: object) -> list[tuple[object, ...]]:
    return sorted((a, b, c or "", d) for a, b, c, d in store.table(result))


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_table_file_keeps_every_row(tmp_path: Path, store: Store, name: str, suffix: str) -> None:
    content = {"csv": as_csv, "jsonl": as_jsonl}[name](ROWS)
    path = tmp_path / f"rows.{name}{suffix}"
    path.write_bytes(COMPRESSED[suffix](content))
    assert found(store, store.shard(path)) == expected()


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_text_file_keeps_every_byte(tmp_path: Path, store: Store, suffix: str) -> None:
    lines = b"".join(b"line %d of the text, caf\xc3\xa9\n" % at for at in range(2_000))
    path = tmp_path / f"rows.txt{suffix}"
    path.write_bytes(COMPRESSED[suffix](lines))
    rows = store.texts(store.shard(path, text_row_bytes=500))
    assert sum(len(row) for row in rows) == len(lines)
    assert set(b"".join(rows).split(b"\n")) == set(lines.split(b"\n"))


PADDING = {"none": 0, "one word": 4, "longer than a read": 2**20}


@pytest.mark.parametrize("num_zeros", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_padding_of_xz_streams_costs_no_row(
    tmp_path: Path, store: Store, name: str, num_zeros: int
) -> None:
    lines = {"csv": as_csv, "jsonl": as_jsonl}[name](ROWS).splitlines(keepends=True)
    streams = [lzma.compress(b"".join(each)) for each in (lines[:100], lines[100:], [])]
    path = tmp_path / f"rows.{name}.xz"
    path.write_bytes(b"".join(each + bytes(num_zeros) for each in streams))
    assert found(store, store.shard(path)) == expected()


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_every_stream_of_a_file_is_read(tmp_path: Path, store: Store, suffix: str) -> None:
    lines = as_csv(ROWS).splitlines(keepends=True)
    path = tmp_path / f"rows.csv{suffix}"
    path.write_bytes(b"".join(COMPRESSED[suffix](line) for line in lines))
    assert found(store, store.shard(path)) == expected()


def test_parquet_file_keeps_every_row(tmp_path: Path, store: Store) -> None:
    as_parquet(tmp_path / "rows.parquet", ROWS)
    assert found(store, store.shard(tmp_path / "rows.parquet")) == expected()


def test_many_files_are_one_table(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    as_parquet(folder / "a.parquet", ROWS[:100])
    as_parquet(folder / "b.parquet", ROWS[100:])
    (folder / "_SUCCESS").touch()
    assert found(store, store.shard(folder)) == expected()


def test_remote_files_are_read_through_the_store(tmp_path: Path, store: Store) -> None:
    as_parquet(tmp_path / "rows.parquet", ROWS)
    store.put_file(tmp_path / "rows.parquet", "s3://data/in/rows.parquet", sha256="")
    (tmp_path / "rows.csv").write_bytes(as_csv(ROWS))
    store.put_file(tmp_path / "rows.csv", "s3://data/csv/one.csv", sha256="")
    assert found(store, store.shard("s3://data/in/")) == expected()
    assert found(store, store.shard("s3://data/csv/*.csv")) == expected()


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "arrow"])
def test_text_column_of_a_table_becomes_tokens(tmp_path: Path, store: Store, name: str) -> None:
    texts = [f"text number {at}, with a comma" for at in range(200)]
    path = tmp_path / f"rows.{name}"
    if name == "csv":
        path.write_text("id,body\n" + "".join(f'{at},"{text}"\n' for at, text in enumerate(texts)))
    elif name == "jsonl":
        path.write_text("".join(json.dumps({"id": 1, "body": text}) + "\n" for text in texts))
    elif name == "parquet":
        pq.write_table(pa.table({"id": range(200), "body": texts}), path)
    else:
        body = pa.array(texts, pa.string_view())
        with pa.ipc.new_file(path, pa.schema([("body", body.type)])) as file:
            file.write_table(pa.table({"body": body}))
    result = store.shard(path, text_column="body")
    assert sorted(store.texts(result)) == sorted(text.encode() for text in texts)
    assert result.index.kind == "tokens"


def test_csv_with_pandas_options_reads_foreign_files(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at};{at},5;Zürich\n" for at in range(300))
    (tmp_path / "odd.csv").write_bytes(("# exported\nnr;betrag;ort\n" + rows).encode("latin-1"))
    options = {"sep": ";", "decimal": ",", "encoding": "latin-1", "comment": "#"}
    result = store.shard(tmp_path / "odd.csv", csv_options=options)
    assert sorted(store.table(result)) == [(at, at + 0.5, "Zürich") for at in range(300)]


def test_marks_of_numbers_change_no_other_column(tmp_path: Path, store: Store) -> None:
    rows = [
        (f"{at % 28 + 1:02}.{at % 12 + 1:02}.2024", f"10.0.{at % 7}.{at % 250}", f"v1.{at % 9}")
        for at in range(300)
    ]
    lines = [f"{';'.join(row)};{1 + at % 9}.{at:03},50" for at, row in enumerate(rows)]
    (tmp_path / "t.csv").write_text("datum;ip;version;betrag\n" + "\n".join(lines) + "\n")
    options = {"sep": ";", "decimal": ",", "thousands": "."}

    result = store.shard(tmp_path / "t.csv", csv_options=options)

    wanted = [(*row, (1 + at % 9) * 1000 + at + 0.5) for at, row in enumerate(rows)]
    assert sorted(store.table(result)) == sorted(wanted)


@pytest.mark.parametrize(
    ("text", "options", "number"),
    [
        ("1.234.567,5", {"decimal": ",", "thousands": "."}, 1234567.5),
        ("-1,234,567.5", {"thousands": ","}, -1234567.5),
        ("12,34,567.5", {"thousands": ","}, 1234567.5),
        ("1 234,5", {"decimal": ",", "thousands": " "}, 1234.5),
        ("1'234.5", {"thousands": "'"}, 1234.5),
        ("1234,5", {"decimal": ",", "thousands": "."}, 1234.5),
        ("1,5e3", {"decimal": ","}, 1500.0),
    ],
)
def test_numbers_with_marks_are_read(
    tmp_path: Path, store: Store, text: str, options: dict[str, str], number: float
) -> None:
    (tmp_path / "t.csv").write_text("x;k\n" + "".join(f"{text};{at}\n" for at in range(300)))
    result = store.shard(tmp_path / "t.csv", csv_options={"sep": ";", **options})
    assert {row[0] for row in store.table(result)} == {number}


@pytest.mark.parametrize("text", ["12.5", "0.123", "1.23,5", "1.2345"])
def test_numbers_with_other_marks_are_bad_rows(tmp_path: Path, store: Store, text: str) -> None:
    rows = "".join(f"{at},5;{at}\n" for at in range(300))
    (tmp_path / "t.csv").write_text(f"x;k\n{rows}{text};300\n")
    options = {"sep": ";", "decimal": ",", "thousands": "."}
    with pytest.raises(DataError, match=f"got '{text}'"):
        store.shard(tmp_path / "t.csv", csv_options=options)


def test_empty_fields_and_spellings_of_missing_are_one_missing_value(
    tmp_path: Path, store: Store
) -> None:
    texts = ["", '""', "NA", "N/A", "NaN", "null", "None", "#N/A", "Nantes", "0"] * 20
    rows = "".join(f"{at},{text}\n" for at, text in enumerate(texts))
    (tmp_path / "rows.csv").write_text("id,city\n" + rows)
    found = Counter(row[1] for row in store.table(store.shard(tmp_path / "rows.csv")))
    assert found == {None: 160, "Nantes": 20, "0": 20}


def test_quoted_line_ends_stay_in_their_row(tmp_path: Path, store: Store) -> None:
    rows = "".join(f'{at},"two\nlines, ""{at % 7}"""\n' for at in range(300))
    (tmp_path / "rows.csv").write_text("id,note\n" + rows)
    result = store.shard(tmp_path / "rows.csv")
    assert {row[1] for row in store.table(result)} == {f'two\nlines, "{at}"' for at in range(7)}
    assert result.index.num_rows == 300


def test_typed_columns_keep_their_types(tmp_path: Path, store: Store) -> None:
    table = pa.table(
        {
            "small": pa.array([1, 2] * 50, pa.int8()),
            "gaps": pa.array([1, None] * 50, pa.int32()),
            "single": pa.array([0.5, None] * 50, pa.float32()),
            "time": pa.array([1_500_000, None] * 50, pa.timestamp("us")),
            "day": pa.array([1, 2] * 50, pa.date32()),
            "flag": pa.array([True, False] * 50),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet", validation_fraction=0, test_fraction=0)
    schema = {column.name: column.dtype for column in result.index.schema or ()}
    assert schema == {
        "small": "int8",
        "gaps": "int32",
        "single": "float32",
        "time": "float64",
        "day": "float64",
        "flag": "uint8",
    }
    assert store.table(result)[:2] == [
        (1, 1.0, 0.5, 1.5, 86_400.0, 1),
        (2, None, None, None, 172_800.0, 0),
    ]
