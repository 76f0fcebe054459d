"""What users get wrong: one clear error each, nothing left behind."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.errors import DataError, SpecError
from include.sharding import DataFormat, ShardSettings, Source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store


def good_csv(rows: int = 100) -> str:
    return "age,city\n" + "".join(f"{at},Rome\n" for at in range(rows))


def quarantine(store: Store, uri: str) -> list[dict[str, object]]:
    with store.open(f"{uri}/quarantine/bad-rows.jsonl") as stream:
        return [json.loads(line) for line in stream]


def test_csv_bad_rows_are_named_with_line_and_reason(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_bytes(
        good_csv().encode() + b"1,Paris,extra\nold,Paris\n7,Z\xfcrich\n8,Oslo\n"
    )
    result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1)
    found = [
        (row["line"], str(row["reason"]).split(":")[0]) for row in quarantine(store, result.uri)
    ]
    assert sorted(found) == [
        (102, "wrong number of fields"),
        (103, "wrong type"),
        (104, "not UTF-8"),
    ]
    assert result.index.bad_rows["count"] == 3
    assert (8, "Oslo") in store.table(result)
    assert result.index.num_rows == 101


def test_jsonl_bad_rows_are_named_with_line_and_reason(tmp_path: Path, store: Store) -> None:
    good = "".join(json.dumps({"age": at, "city": "Rome"}) + "\n" for at in range(100))
    bad = b'{"age": 1,\n[1]\n{"age": "old", "city": "Rome"}\n{"age": 2, "city": "Z\xfcrich"}\n'
    (tmp_path / "t.jsonl").write_bytes(good.encode() + bad)
    result = store.shard(tmp_path / "t.jsonl", max_bad_row_fraction=0.1)
    found = [
        (row["line"], str(row["reason"]).split(":")[0]) for row in quarantine(store, result.uri)
    ]
    assert found == [
        (101, "invalid JSON"),
        (102, "not a JSON object"),
        (103, "wrong type"),
        (104, "not UTF-8"),
    ]
    assert result.index.num_rows == 100


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for at in range(30):
        (folder / f"{at}.txt").write_text(f"text {at}\n")
    (folder / "latin.txt").write_bytes(b"fine\nZ\xfcrich\n")
    result = store.shard(folder, max_bad_row_fraction=0.1, num_shards=1)
    assert [(row["file"], row["line"]) for row in quarantine(store, result.uri)] == [
        ("latin.txt", 2)
    ]


def test_too_many_bad_rows_fail_and_show_the_first(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text(good_csv() + "1,Paris,extra\n" * 5)
    with pytest.raises(DataError) as caught:
        store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.01)
    message = str(caught.value)
    assert "5 of 105 rows (5 wrong number of fields)" in message
    assert "t.csv:102: wrong number of fields: 3 for 2 columns" in message
    assert "max_bad_row_fraction" in message
    assert not [head for head in store.list("s3://bucket/") if head.uri.endswith("index.json")]


def test_late_fraction_makes_a_whole_number_column_float(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at % 90},Rome\n" for at in range(30_000))
    (tmp_path / "t.csv").write_text("age,city\n" + rows + "1.5,Rome\n,Rome\n")
    result = store.shard(tmp_path / "t.csv")
    assert (result.index.schema or ())[0].dtype == "float64"
    ages = [row[0] for row in store.table(result)]
    assert len(ages) == 30_002
    assert 1.5 in ages
    assert None in ages


def test_row_without_target_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    labels = [at % 2 for at in range(98)] + [None, None]
    pq.write_table(pa.table({"a": range(100), "label": labels}), tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet", target_column="label", max_bad_row_fraction=0.1)
    assert result.index.bad_rows["count"] == 2
    assert result.index.num_rows == 98
    assert [(column.dtype, column.role) for column in result.index.schema or ()] == [
        ("int64", "feature"),
        ("int64", "target"),
    ]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "every file of the source is empty"),
        (b"a,b\n", "t.csv", "the source has no rows"),
        (b"a,a\n1,2\n", "t.csv", "names a column twice"),
        (b"\n\n", "t.jsonl", "none of the first lines is a JSON object"),
        (b"whatever", "t.bin", "the format of the source cannot be told"),
        (b"not parquet", "t.parquet", "a source file cannot be read"),
        (b"not gzip", "t.csv.gz", "a source file cannot be read"),
        (gzip.compress(b"text\n" * 10_000)[:-20], "t.txt.gz", "a source file cannot be read"),
        (b"not xz", "t.txt.xz", "a source file cannot be read"),
        (b"not zstd", "t.txt.zst", "a source file cannot be read"),
        (b"   \n", "t.txt", "the source has no rows"),
        (b"one row\n", "t.txt", "nothing is left for the"),
    ],
    ids=[
        "empty file",
        "header only",
        "column named twice",
        "blank lines",
        "unknown format",
        "not parquet",
        "not gzip",
        "gzip cut short",
        "not xz",
        "not zstd",
        "spaces only",
        "too few rows",
    ],
)
def test_unusable_file_is_refused(
    tmp_path: Path, store: Store, content: bytes, name: str, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        store.shard(tmp_path / name, num_shards=1)
    assert not list(store.list("s3://bucket/"))


def test_missing_source_names_the_nearest(tmp_path: Path, store: Store) -> None:
    (tmp_path / "customers.csv").write_text(good_csv())
    with pytest.raises(DataError, match=r"did you mean .*customers\.csv"):
        store.shard(tmp_path / "custmers.csv")
    with pytest.raises(DataError, match="the source names no file"):
        store.shard("s3://nowhere/data/")


def test_mixed_formats_are_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(good_csv())
    (tmp_path / "in" / "b.txt").write_text("text")
    with pytest.raises(DataError, match="the source mixes formats"):
        store.shard(tmp_path / "in")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_of_other_columns_are_refused(tmp_path: Path, store: Store, suffix: str) -> None:
    (tmp_path / "in").mkdir()
    for name, column in (("a", "age"), ("b", "years")):
        if suffix == "csv":
            (tmp_path / "in" / f"{name}.csv").write_text(f"{column}\n1\n2\n")
        else:
            pq.write_table(pa.table({column: [1, 2]}), tmp_path / "in" / f"{name}.parquet")
    with pytest.raises(DataError, match="of the first file"):
        store.shard(tmp_path / "in", num_shards=1)


@pytest.mark.parametrize("setting", ["target_column", "text_column"])
def test_unknown_column_names_the_nearest(tmp_path: Path, store: Store, setting: str) -> None:
    (tmp_path / "t.csv").write_text(good_csv())
    with pytest.raises(SpecError, match="did you mean 'city'"):
        store.shard(tmp_path / "t.csv", **{setting: "citi"})


def test_column_of_many_strings_is_refused_as_a_feature(tmp_path: Path, store: Store) -> None:
    pq.write_table(pa.table({"id": [f"id-{at}" for at in range(50)]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="too many distinct values") as caught:
        store.shard(tmp_path / "t.parquet", max_categories=10)
    assert "ignore_columns" in str(caught.value)


def test_nested_column_is_refused_unless_ignored(tmp_path: Path, store: Store) -> None:
    rows = "".join(json.dumps({"a": at, "b": {"c": 1}}) + "\n" for at in range(100))
    (tmp_path / "t.jsonl").write_text(rows)
    with pytest.raises(DataError, match="cannot become a typed column"):
        store.shard(tmp_path / "t.jsonl")
    result = store.shard(tmp_path / "t.jsonl", ignore_columns=("b",))
    assert result.index.num_rows == 100


def test_missing_tokenizer_file_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.txt").write_text("text\n")
    with pytest.raises(SpecError, match="no tokenizer can be read"):
        store.shard(tmp_path / "t.txt", tokenizer=str(tmp_path / "tokenizer.json"))


def test_all_wrong_settings_are_reported_together() -> None:
    with pytest.raises(SpecError) as caught:
        ShardSettings(num_shards=-1, validation_fraction=0.6, test_fraction=0.5, num_workers=-2)
    assert {finding.where for finding in caught.value.findings} == {
        "num_shards",
        "num_workers",
        "validation_fraction + test_fraction",
    }


def test_unknown_data_format_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean parquet"):
        Source(uri="x", data_format="parqet")  # type: ignore[arg-type]
    assert Source(uri="x", data_format="csv").data_format == DataFormat.CSV  # type: ignore[arg-type]
