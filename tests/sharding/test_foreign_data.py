"""Data as other tools leave them: Excel, Spark, pandas, and loggers of numbers."""

from __future__ import annotations

import gzip
import os
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardSettings
from trainyard.sharding.parts import files_of_part
from trainyard.sharding.source_files import SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store

ROWS = 400


def names_by_part(suffix: str = "parquet") -> tuple[str, str]:
    """Return a file name of part 0 and one of part 1, of two parts."""
    files = [SourceFile(name=f"{at}.{suffix}", uri="", size=1) for at in range(40)]
    first, second = (files_of_part(files, part=part, num_parts=2) for part in (0, 1))
    return first[0].name, second[0].name


def write_two(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> Path:
    folder.mkdir()
    for name, columns in zip(names_by_part(), (first, second), strict=True):
        pq.write_table(pa.table(columns), folder / name)
    return folder


MOMENTS = pa.array(range(ROWS), pa.timestamp("us"))
SEVERAL_TYPES = {
    "text and int32": (pa.array(["a", "b"] * (ROWS // 2)), pa.array(range(ROWS), pa.int32())),
    "int32 and text": (pa.array(range(ROWS), pa.int32()), pa.array(["a", "b"] * (ROWS // 2))),
    "time and float": (MOMENTS, pa.array([0.5] * ROWS)),
    "time and time of day": (MOMENTS, pa.array(range(ROWS), pa.time64("us"))),
}


@pytest.mark.parametrize("types", SEVERAL_TYPES)
def test_parts_that_store_other_values_in_one_type_are_refused(
    tmp_path: Path, store: Store, types: str
) -> None:
    first, second = SEVERAL_TYPES[types]
    source = write_two(tmp_path / "in", {"x": first}, {"x": second})
    with pytest.raises(DataError, match="a column differs between the parts of the data set"):
        shard_in_parts(store, source, num_parts=2)


def test_parts_may_have_another_order_of_columns(tmp_path: Path, store: Store) -> None:
    text = ["a", "b"] * (ROWS // 2)
    first, second = {"x": range(ROWS), "c": text}, {"c": text[::-1], "x": range(ROWS, 2 * ROWS)}
    source = write_two(tmp_path / "in", first, second)
    result = shard_in_parts(store, source, num_parts=2)
    wanted = zip(range(2 * ROWS), text + text[::-1], strict=True)
    assert sorted(store.table(result)) == list(wanted)


FOREIGN_HEADERS = {
    "line end in a name": (b'"price\n(EUR)",n\n', "a column's name has a line break"),
    "latin-1": ("größe,n\n".encode("latin-1"), "is not UTF-8"),
    "utf-16": ("größe,n\n".encode("utf-16"), "is not UTF-8"),
    "delimiter of Excel": (b"sep=;\nname;n\n", "delimiter"),
}


@pytest.mark.parametrize("header", FOREIGN_HEADERS)
def test_csv_header_that_would_be_misread_is_refused_with_its_option(
    tmp_path: Path, store: Store, header: str
) -> None:
    content, message = FOREIGN_HEADERS[header]
    encoding = "utf-16-le" if header == "utf-16" else "ascii"
    delimiter = ";" if header == "delimiter of Excel" else ","
    rows = "".join(f"{at}{delimiter}{at}\n" for at in range(ROWS)).encode(encoding)
    (tmp_path / "t.csv").write_bytes(content + rows)
    with pytest.raises(DataError, match=message) as caught:
        store.shard(tmp_path / "t.csv")
    assert caught.value.where == "t.csv"
    assert "csv_options" in (caught.value.next_step or "")


def test_csv_with_the_delimiter_line_of_excel_is_read_as_its_error_says(
    tmp_path: Path, store: Store
) -> None:
    rows = "".join(f"a{at % 3};{at}\r\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("sep=;\r\nname;n\r\n" + rows, newline="")
    result = store.shard(tmp_path / "t.csv", csv_options={"sep": ";", "skiprows": 1})
    assert sorted(row[1] for row in store.table(result)) == list(range(ROWS))


@pytest.mark.parametrize("marks", ["-999", -999, ["-999"], [-999], {"a": -999}, {"a": ["-999"]}])
def test_marks_of_missing_values_are_those_of_pandas(
    tmp_path: Path, store: Store, marks: Any
) -> None:
    rows = [(at, None if at % 10 == 0 else at % 10) for at in range(ROWS)]
    text = "".join(f"{at},{-999 if value is None else value}\n" for at, value in rows)
    (tmp_path / "t.csv").write_text("n,a\n" + text)
    result = store.shard(tmp_path / "t.csv", csv_options={"na_values": marks})
    assert sorted(store.table(result)) == rows


def test_surnames_that_mean_missing_are_kept_on_request(tmp_path: Path, store: Store) -> None:
    names = ["Null", "NA", "None", "nan", "Smith"]
    text = "".join(f"{at},{names[at % 5]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,name\n" + text)
    result = store.shard(tmp_path / "t.csv", csv_options={"keep_default_na": False})
    assert sorted(store.table(result)) == [(at, names[at % 5]) for at in range(ROWS)]


@pytest.mark.parametrize("option", ["dtype", "nrows", "index_col", "engine", "true_values"])
def test_csv_options_that_sharding_does_not_take_are_refused_at_once(option: str) -> None:
    with pytest.raises(SpecError, match=option):
        ShardSettings(csv_options={"sep": ";", option: 1})


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("number", ["1e345", "-1e345", "9" * 400], ids=["1e345", "-1e345", "long"])
@pytest.mark.parametrize("others", ["{}", "{}.5"], ids=["whole", "fractions"])
def test_number_beyond_float64_is_no_infinity(
    tmp_path: Path, store: Store, suffix: str, number: str, others: str
) -> None:
    values = [number if at == 7 else others.format(at) for at in range(ROWS)]
    line = '{{"n": {}, "x": {}}}' if suffix == "jsonl" else "{},{}"
    text = "".join(line.format(at, value) + "\n" for at, value in enumerate(values))
    (tmp_path / f"t.{suffix}").write_text(("n,x\n" if suffix == "csv" else "") + text)
    if number[0] == "9":  # whole numbers are never lost
        with pytest.raises(DataError, match="integers that no numeric type can represent"):
            store.shard(tmp_path / f"t.{suffix}", max_bad_row_fraction=0.1)
        return
    result = store.shard(tmp_path / f"t.{suffix}", max_bad_row_fraction=0.1)
    assert result.index.bad_rows["count"] == 1
    assert sorted(row[0] for row in store.table(result)) == [at for at in range(ROWS) if at != 7]


def test_infinity_that_is_written_as_one_arrives(tmp_path: Path, store: Store) -> None:
    spelled = ["inf", "-Inf", "1e300", "0.5"]
    text = "".join(f"{at},{spelled[at % 4]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,x\n" + text)
    found = [row[1] for row in store.table(store.shard(tmp_path / "t.csv"))]
    assert sorted(found) == sorted(float(spelled[at % 4]) for at in range(ROWS))


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_strings_as_differences_arrive(tmp_path: Path, store: Store, encoding: str) -> None:
    texts = [None if at % 7 == 0 else f"prefix-\u00fc{at % 90}" for at in range(ROWS)]
    table = pa.table({"k": range(ROWS), "s": texts})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/a.parquet")
    pq.write_table(
        table, tmp_path / "in/b.parquet", use_dictionary=False, column_encoding={"s": encoding}
    )
    rows = store.table(store.shard(tmp_path / "in"))
    assert sorted(rows, key=str) == sorted(zip([*range(ROWS)] * 2, texts * 2, strict=True), key=str)
    read = store.texts(store.shard(tmp_path / "in", text_column="s", max_bad_row_fraction=0.2))
    assert sorted(read) == sorted(text.encode() for text in texts * 2 if text)


def test_parquet_of_duckdb_in_version_2_arrives(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "t.parquet"
    rows_of = f"select i k, 'v' || (i % 350) s from range({ROWS}) r(i)"  # noqa: S608  # our own text
    with duckdb.connect() as connection:
        connection.execute(f"copy ({rows_of}) to '{path}' (parquet_version v2)")
    assert "DELTA_LENGTH_BYTE_ARRAY" in pq.read_metadata(path).row_group(0).column(1).encodings
    rows = store.table(store.shard(path))
    assert sorted(rows) == [(at, f"v{at % 350}") for at in range(ROWS)]


def test_wide_parquet_is_planned_by_one_look_at_each_column(tmp_path: Path) -> None:
    from trainyard.sharding.parquet_rows import _short_strings

    names = [f"c{at}" for at in range(300)]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({name: ["a", "b"] for name in names}), path)
    metadata = _CountedMetadata(pq.read_metadata(path))
    assert _short_strings(metadata, names) == names  # type: ignore[arg-type]
    assert metadata.num_looks <= 2 * len(names)


class _CountedMetadata:
    """Metadata of one row group that counts the looks at its columns."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._group = metadata.row_group(0)
        self.num_looks, self.num_row_groups, self.num_rows = 0, 1, metadata.num_rows
        self.num_columns = metadata.num_columns

    def row_group(self, _: int) -> _CountedMetadata:
        return self

    def column(self, at: int) -> pq.ColumnChunkMetaData:
        self.num_looks += 1
        return self._group.column(at)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_columns_in_folder_names_are_named(
    tmp_path: Path, store: Store, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for region in ("eu", "us"):
        folder = tmp_path / "in" / f"region={region}" / "year=2026"
        folder.mkdir(parents=True)
        if suffix == "csv":
            (folder / "a.csv").write_text("x\n" + "".join(f"{at}\n" for at in range(ROWS)))
        else:
            pq.write_table(pa.table({"x": range(ROWS)}), folder / "a.parquet")
    result = store.shard(tmp_path / "in")
    assert result.index.num_rows == 2 * ROWS
    assert "region, year" in caplog.text


def test_times_have_one_value_in_every_unit(tmp_path: Path, store: Store) -> None:
    micros = [1_774_000_000_123_456 + at * 977 for at in range(ROWS)]
    wanted = [float(Fraction(each, 10**6)) for each in micros]
    for unit, factor in (("us", 1), ("ns", 1000)):
        times = pa.array([each * factor for each in micros], pa.timestamp(unit))
        pq.write_table(pa.table({"t": times}), tmp_path / f"{unit}.parquet")
        found = store.table(store.shard(tmp_path / f"{unit}.parquet"))
        assert sorted(row[0] for row in found) == wanted


def test_spark_times_far_from_now_arrive(tmp_path: Path, store: Store) -> None:
    last = 253_402_214_400  # 9999-12-31
    seconds = [at if at % 2 else last for at in range(ROWS)]
    times = pa.array([each * 10**6 for each in seconds], pa.timestamp("us"))
    table = pa.table({"t": times}).replace_schema_metadata({"org.apache.spark.version": "3.5.1"})
    # As Spark writes times, and without the schema that only Arrow stores.
    pq.write_table(
        table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True, store_schema=False
    )
    path = tmp_path / "t.parquet"
    if b"org.apache.spark.version" not in (pq.read_metadata(path).metadata or {}):
        writer = pq.ParquetWriter(
            path, table.schema, use_deprecated_int96_timestamps=True, store_schema=False
        )
        writer.write_table(table)
        writer.add_key_value_metadata({"org.apache.spark.version": "3.5.1"})
        writer.close()
    found = store.table(store.shard(path))
    assert sorted(row[0] for row in found) == sorted(map(float, seconds))


def test_times_that_are_rounded_are_named(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    end = 253_402_300_799_999_999  # 9999-12-31 23:59:59.999999
    values = pa.array([end if at % 2 else at for at in range(ROWS)], pa.timestamp("us"))
    pq.write_table(pa.table({"t": values, "n": range(ROWS)}), tmp_path / "t.parquet")
    store.shard(tmp_path / "t.parquet")
    assert "column 't'" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"\xef\xbb\xbf"], ids=["gz", "line", "mark"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_csv_file_without_content_is_passed_over(
    tmp_path: Path, store: Store, content: bytes, first: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.csv").write_text("x\n" + "".join(f"{at}\n" for at in range(ROWS)))
    packed = gzip.compress(content)
    (tmp_path / "in" / ("a.csv.gz" if first else "c.csv.gz")).write_bytes(packed)
    assert store.shard(tmp_path / "in").index.num_rows == ROWS


def test_file_name_that_is_not_utf8_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"gr\xf6sse.csv")).write_text("x\n1\n")
    with pytest.raises(DataError, match="name is not UTF-8"):
        store.shard(tmp_path / "in")


def test_whole_decimals_of_every_width_arrive(tmp_path: Path, store: Store) -> None:
    types = {"a": pa.decimal32(9, 0), "b": pa.decimal64(18, 0), "c": pa.decimal256(50, 0)}
    table = pa.table({name: pa.array(range(ROWS), kind) for name, kind in types.items()})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    found = store.table(store.shard(tmp_path / "t.arrow"))
    assert sorted(found) == [(at, at, at) for at in range(ROWS)]


def test_categories_that_no_row_has_do_not_count(tmp_path: Path, store: Store) -> None:
    codes = pa.array([at % 3 for at in range(ROWS)], pa.int32())
    known = pa.DictionaryArray.from_arrays(codes, pa.array([f"v{at}" for at in range(50)]))
    table = pa.table({"n": range(ROWS), "c": known})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    found = store.table(store.shard(tmp_path / "t.arrow", max_categories=5))
    assert sorted(found) == [(at, f"v{at % 3}") for at in range(ROWS)]


def test_ignored_column_may_be_in_later_files_alone(tmp_path: Path, store: Store) -> None:
    first, second = {"x": range(ROWS)}, {"x": range(ROWS), "extra": range(ROWS)}
    source = write_two(tmp_path / "in", first, second)
    assert store.shard(source, ignore_columns=("extra",)).index.num_rows == 2 * ROWS


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_column_that_is_empty_in_one_parquet_file_has_the_type_of_the_others(
    tmp_path: Path, store: Store, is_first: bool
) -> None:
    empty = {"n": range(ROWS), "s": pa.nulls(ROWS), "i": pa.nulls(ROWS), "f": pa.nulls(ROWS)}
    filled = {
        "n": range(ROWS, 2 * ROWS),
        "s": ["a", "b"] * (ROWS // 2),
        "i": pa.array(range(ROWS), pa.int32()),
        "f": [0.5] * ROWS,
    }
    both = (empty, filled) if is_first else (filled, empty)
    source = write_two(tmp_path / "in", *both)
    rows = [(at, None, None, None) for at in range(ROWS)]
    rows += [(ROWS + at, "ab"[at % 2], at, 0.5) for at in range(ROWS)]
    assert sorted(store.table(store.shard(source)), key=lambda row: row[0]) == rows


def test_names_with_dots_are_read_beside_an_ignored_struct_of_that_path(
    tmp_path: Path, store: Store
) -> None:
    struct = pa.array([{"b": at} for at in range(ROWS)])
    table = pa.table(
        {"a": struct, "a.b": [at * 10 for at in range(ROWS)], "größe (m²)": range(ROWS)}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = store.table(store.shard(tmp_path / "t.parquet", ignore_columns=("a",)))
    assert sorted(found) == [(at * 10, at) for at in range(ROWS)]
