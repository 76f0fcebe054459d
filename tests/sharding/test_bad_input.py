"""What users get wrong: one clear error each, nothing left behind."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainyard.errors import DataError, SpecError
from trainyard.sharding import DataFormat, LocalObjects, ShardSettings, Source
from trainyard.sharding.line_blocks import line_blocks
from trainyard.sharding.source_files import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.sharding.conftest import Store


UNSPLIT = {"validation_fraction": 0, "test_fraction": 0, "max_bad_row_fraction": 0.2}


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


@pytest.mark.parametrize("is_valid", [True, False], ids=["blank-lines", "faulty-lines"])
@pytest.mark.parametrize(
    ("name", "missing", "settings"),
    [
        ("text", None, {"text_column": "text"}),
        ("ids", [], {"text_column": "ids", "vocab_size": 9}),
        ("age", None, {"target_column": "age", "ignore_columns": ("ids",)}),
    ],
)
def test_jsonl_rows_below_skipped_lines_are_named_with_their_own_line(
    tmp_path: Path,
    store: Store,
    name: str,
    missing: object,
    settings: dict[str, Any],
    is_valid: bool,
) -> None:
    row = {"text": "a text", "ids": [1, 2], "age": 4}
    lines = [json.dumps(row)] * 50 + ["" if is_valid else "{"] * 3
    lines += [json.dumps(row), json.dumps({**row, name: missing})]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    result = store.shard(
        tmp_path / "t.jsonl",
        max_bad_row_fraction=0.2,
        validation_fraction=0,
        test_fraction=0,
        **settings,
    )
    found = [
        row["line"] for row in quarantine(store, result.uri) if "JSON" not in str(row["reason"])
    ]
    assert found == [55]


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
    assert "5 of 105 rows (5 x wrong number of fields)" in message
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
    "kind", ["csv", "csv with options", "jsonl", "double", "float", "halffloat"]
)
def test_row_with_an_infinite_or_nan_target_is_a_bad_row(
    tmp_path: Path, store: Store, kind: str
) -> None:
    prices = [at / 4 for at in range(98)] + [math.inf, -math.inf, math.nan, None]
    path = tmp_path / f"t.{kind.partition(' ')[0]}"
    if kind.startswith("csv"):
        texts = ["" if price is None else str(price) for price in prices]
        path.write_text("a,price\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts)))
    elif kind == "jsonl":
        lines = [json.dumps({"a": at, "price": price}) for at, price in enumerate(prices)]
        path.write_text("\n".join(lines) + "\n")
    else:
        path = tmp_path / "t.parquet"
        column = pa.array(prices, pa.float64()).cast(kind)
        pq.write_table(pa.table({"a": range(102), "price": column}), path)
    options = {"csv_options": {"sep": ","}} if kind == "csv with options" else {}
    result = store.shard(path, target_column="price", max_bad_row_fraction=0.1, **options)

    reasons = Counter(str(row["reason"]) for row in quarantine(store, result.uri))
    assert reasons == {
        "infinite target: column 'price'": 2,
        "missing target: column 'price'": 2,
    }
    assert result.index.num_rows == 98
    target = (result.index.schema or ())[1]
    assert (target.num_infinite, target.values) == (0, ())


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "every file of the source is empty"),
        (b"a,b\n", "t.csv", "the source has no rows"),
        (b"a,a\n1,2\n", "t.csv", "a csv file has two columns of the same name"),
        (b"\n\n", "t.jsonl", "none of the first lines is a JSON object"),
        (b"whatever", "t.dat", "the format of the source cannot be derived from its file names"),
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


STREAMS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
BEHIND: dict[str, Callable[[bytes], bytes]] = {
    "line end": lambda _: b"\n",
    "text": lambda _: b"<html>service unavailable</html>",
    "damaged header": lambda stream: stream[:1] + bytes([stream[1] ^ 1]) + stream[2:],
    "damaged content": lambda stream: stream[:-15] + bytes([stream[-15] ^ 1]) + stream[-14:],
    "cut short": lambda stream: stream[:-5],
    "zeros, then text": lambda _: bytes(8) + b"text",
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("suffix", STREAMS)
@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_bytes_behind_a_stream_are_refused(
    tmp_path: Path, store: Store, name: str, suffix: str, behind: str
) -> None:
    rows = "".join(f'{{"age": {at}, "city": "Rome"}}\n' for at in range(100))
    stream = STREAMS[suffix]((good_csv() if name == "csv" else rows).encode())
    (tmp_path / f"t.{name}.{suffix}").write_bytes(stream + BEHIND[behind](stream))
    with pytest.raises(DataError, match="cannot be read") as caught:
        store.shard(tmp_path / f"t.{name}.{suffix}")
    if suffix in {"bz2", "xz"}:
        start = len(stream) + (8 if suffix == "xz" and behind == "zeros, then text" else 0)
        assert f"stream 2, from byte {start}, is" in (caught.value.got or "")


@pytest.mark.parametrize("num_zeros", [1, 6])
def test_padding_that_is_no_multiple_of_four_is_refused(
    tmp_path: Path, store: Store, num_zeros: int
) -> None:
    stream = lzma.compress(good_csv().encode())
    (tmp_path / "t.csv.xz").write_bytes(stream + bytes(num_zeros))
    with pytest.raises(DataError, match=f"{num_zeros} zero bytes behind stream 1"):
        store.shard(tmp_path / "t.csv.xz")


@pytest.mark.parametrize("name", ["t.jsonl.zst", "t.csv.zst", "t.npy.zst"])
@pytest.mark.parametrize("exponent", [28, 31])
def test_zstd_of_a_large_window_has_a_remedy(
    tmp_path: Path, store: Store, name: str, exponent: int
) -> None:
    content = b'{"a": 1}\n'
    window, last_raw_block = (exponent - 10) << 3, len(content) << 3 | 1
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + last_raw_block.to_bytes(3, "little")
    (tmp_path / name).write_bytes(frame + content)
    with pytest.raises(DataError, match="window above 128 MiB") as caught:
        store.shard(tmp_path / name, vocab_size=9 if "npy" in name else 0)
    assert "zstd -d --long=31" in (caught.value.next_step or "")


def test_missing_source_names_the_nearest(tmp_path: Path, store: Store) -> None:
    (tmp_path / "customers.csv").write_text(good_csv())
    with pytest.raises(DataError, match=r"did you mean .*customers\.csv"):
        store.shard(tmp_path / "custmers.csv")
    with pytest.raises(DataError, match="the source does not exist"):
        store.shard("s3://nowhere/data/")


def test_mixed_formats_are_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(good_csv())
    (tmp_path / "in" / "b.txt").write_text("text")
    with pytest.raises(DataError, match="the source mixes formats"):
        store.shard(tmp_path / "in")


def test_texts_that_describe_the_data_are_left_out(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(good_csv())
    alone = store.shard(folder).index.splits
    for name in ("README.md", "LICENSE.txt", "Citation.md"):
        (folder / name).write_text("about the data")
    assert store.shard(folder).index.splits == alone
    assert "3 file(s) of the source are not read as csv: Citation.md, LICENSE.txt, README.md" in (
        caplog.text
    )
    (folder / "readmeal.txt").write_text("a text of its own")
    with pytest.raises(DataError, match="the source mixes formats"):
        store.shard(folder)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_of_other_columns_are_refused(tmp_path: Path, store: Store, suffix: str) -> None:
    (tmp_path / "in").mkdir()
    for name, column in (("a", "age"), ("b", "years")):
        if suffix == "csv":
            (tmp_path / "in" / f"{name}.csv").write_text(f"{column}\n1\n2\n")
        else:
            pq.write_table(pa.table({column: [1, 2]}), tmp_path / "in" / f"{name}.parquet")
    with pytest.raises(DataError, match="the first file"):
        store.shard(tmp_path / "in", num_shards=1)


@pytest.mark.parametrize(
    ("first", "second", "message", "next_step"),
    [
        ("\n1,2\n", None, "the first line of a csv file is empty", "add a header line"),
        (
            "a,a\n1,2\n",
            None,
            "a csv file has two columns of the same name: 'a'",
            "rename one of them",
        ),
        ("a,b\n1,2\n", "\n1,2\n", "the first line of a csv file is empty", "add a header line"),
        ("a,b\n1,2\n", "a,c\n1,2\n", "differ from those of the first file", "select some files"),
    ],
    ids=["empty line", "column twice", "empty line of a later file", "other columns"],
)
def test_each_fault_of_a_csv_header_has_its_next_step(
    tmp_path: Path, store: Store, first: str, second: str | None, message: str, next_step: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(first)
    if second:
        (tmp_path / "in" / "b.csv").write_text(second)
    with pytest.raises(DataError, match=message) as caught:
        store.shard(tmp_path / "in")
    assert next_step in (caught.value.next_step or "")
    assert caught.value.where == ("b.csv" if second else "a.csv")
    assert caught.value.allowed


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
    with pytest.raises(DataError, match="type is not supported"):
        store.shard(tmp_path / "t.jsonl")
    result = store.shard(tmp_path / "t.jsonl", ignore_columns=("b",))
    assert result.index.num_rows == 100


@pytest.mark.parametrize("num_rows", [5, 30_000], ids=["first", "late"])
@pytest.mark.parametrize(("value", "kind"), [({"c": 1}, "an object"), ([1, 2], "a list")])
def test_nested_value_of_jsonl_is_named_by_its_line(
    tmp_path: Path, store: Store, value: Any, kind: str, num_rows: int
) -> None:
    rows = '{"a": 1}\n' * num_rows + json.dumps({"a": 1, "b": value}) + "\n"
    (tmp_path / "t.jsonl").write_text(rows)
    with pytest.raises(DataError, match="type is not supported") as caught:
        store.shard(tmp_path / "t.jsonl")
    assert caught.value.where == f"column 'b' in t.jsonl:{num_rows + 1}"
    assert caught.value.got == f"{kind}: {json.dumps(value)}"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)], ids=str)
def test_binary_column_is_refused_with_a_cast(
    tmp_path: Path, store: Store, kind: pa.DataType
) -> None:
    pq.write_table(pa.table({"x": pa.array([b"ab"] * 9, kind)}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="type is not supported") as caught:
        store.shard(tmp_path / "t.parquet")
    assert "cast it to string" in (caught.value.next_step or "")


def test_missing_tokenizer_file_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.txt").write_text("text\n")
    with pytest.raises(SpecError, match=r"cannot be read as a tokenizer; got .*FileNotFound"):
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
    with pytest.raises(SpecError, match="did you mean 'parquet'"):
        Source(uri="x", data_format="parqet")  # type: ignore[arg-type]
    assert Source(uri="x", data_format="csv").data_format == DataFormat.CSV  # type: ignore[arg-type]


STRAY = "".join(
    f"{at},{'5 inch' if at != 5 else chr(53) + chr(34) + ' pipe'}\n" for at in range(300)
)
"""csv whose sixth row has a quote inside a field that is not quoted."""


@pytest.mark.parametrize("block_bytes", [16, 100, 10**6])
@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"x\ny"\n2,"",3\n"p""q\nr",s\n',
        'a,b\n1,5" pipe\n2,"6"" x"\n3,7"\n4,"a\n""b"\n',
        '\ufeff"a","b"\n"1\n2","3"\n',
        'a,b\n1,"x"y"z\n2,"w\nv"\n',
    ],
    ids=["quoted", "stray", "byte order mark", "text after a quoted field"],
)
def test_blocks_end_where_a_row_of_csv_ends(tmp_path: Path, text: str, block_bytes: int) -> None:
    (tmp_path / "t.csv").write_text(text)
    file = SourceFile(name="t.csv", uri=str(tmp_path / "t.csv"), size=len(text.encode()))
    blocks = line_blocks(file, LocalObjects(tmp_path), block_bytes=block_bytes, delimiter=b",")
    pieces = [block.data.decode() for block in blocks]
    assert "".join(pieces) == text
    rows = [row for piece in pieces for row in csv.reader(io.StringIO(piece, newline=""))]
    assert rows == list(csv.reader(io.StringIO(text, newline="")))


def test_one_stray_quote_costs_no_row_of_a_large_file(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(line_blocks, block_bytes=1_000)
    # First, since it imports the module, which must take the original limit.
    monkeypatch.setattr("trainyard.sharding.csv_rows.line_blocks", small)
    monkeypatch.setattr("trainyard.sharding.line_blocks.MAX_LINE_BYTES", 2_000)
    (tmp_path / "t.csv").write_text("id,s\n" + STRAY * 40)
    result = store.shard(tmp_path / "t.csv")
    assert result.index.num_rows == 12_000
    assert result.index.bad_rows["count"] == 0


def test_quote_that_is_never_closed_is_refused_with_its_line(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("id,s\n" + good_csv().partition("\n")[2] + '7,"pipe\n8,x\n')
    with pytest.raises(DataError, match=r"starts in line \d+ is never closed"):
        store.shard(tmp_path / "t.csv")


def test_long_fields_are_read_beside_bad_rows(tmp_path: Path, store: Store) -> None:
    long = "z" * 200_000
    rows = [f"{at},{long if at == 7 else 'y'}\n" for at in range(200)]
    (tmp_path / "t.csv").write_text("id,s\n" + "".join(rows) + "1,2,3\n")
    result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1)
    assert result.index.num_rows == 200
    assert (7, long) in store.table(result)


def test_carriage_returns_alone_are_refused_with_a_remedy(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text(good_csv().replace("\n", "\r"), newline="")
    with pytest.raises(DataError, match="end with a carriage return and no line feed"):
        store.shard(tmp_path / "t.csv")


def test_jsonl_of_one_object_needs_no_line_end(tmp_path: Path, store: Store) -> None:
    for at in range(200):
        (tmp_path / f"{at:03d}.jsonl").write_text(json.dumps({"id": at}))
    result = store.shard(tmp_path / "*.jsonl")
    assert sorted(row[0] for row in store.table(result)) == list(range(200))


@pytest.mark.parametrize("late", [0.5, "word", True, 2**60], ids=str)
@pytest.mark.parametrize("is_named", [False, True], ids=["absent", "null"])
@pytest.mark.parametrize("has_bad_line", [False, True], ids=["sound", "bad-line"])
def test_jsonl_column_that_comes_late_arrives(
    tmp_path: Path, store: Store, late: Any, is_named: bool, has_bad_line: bool
) -> None:
    early = json.dumps({"id": 1, "late": None} if is_named else {"id": 1})
    lines = [early] * 20_500 + [json.dumps({"id": 2, "late": late})] * 30
    lines += ["no json"] * has_bad_line
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT)
    assert Counter(store.table(result)) == {(1, None): 20_500, (2, late): 30}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_column_that_is_empty_at_first_becomes_what_it_holds(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    lines = ["1,"] * 20_500 + [f"2,{at}" for at in range(15_000)]
    if suffix == "jsonl":
        pairs = [line.split(",") for line in lines]
        lines = [f'{{"id": {one}, "late": {two or "null"}}}' for one, two in pairs]
    else:
        lines.insert(0, "id,late")
    (tmp_path / f"t.{suffix}").write_text("\n".join(lines) + "\n")
    result = store.shard(tmp_path / f"t.{suffix}")
    assert [column.dtype for column in result.index.schema or ()] == ["int64", "int64"]
    assert sum(row[1] is not None for row in store.table(result)) == 15_000


def test_half_a_surrogate_pair_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    lines = [json.dumps({"s": f"w{at % 5}"}) for at in range(100)] + ['{"s": "\\ud800"}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT)
    assert (result.index.num_rows, result.index.bad_rows["count"]) == (100, 1)


def test_large_whole_numbers_in_a_column_of_floats_are_read_beside_bad_lines(
    tmp_path: Path, store: Store
) -> None:
    lines = [json.dumps({"x": at + 0.5}) for at in range(100)] + ['{"x": 9007199254740994}', "{"]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    result = store.shard(tmp_path / "t.jsonl", max_bad_row_fraction=0.1)
    assert float(2**53 + 2) in {row[0] for row in store.table(result)}


@pytest.mark.parametrize("options", [{}, {"sep": ";"}], ids=["plain", "csv_options"])
def test_a_column_beside_the_text_may_change_its_type(
    tmp_path: Path, store: Store, options: dict[str, str]
) -> None:
    sep = options.get("sep", ",")
    rows = [f"word {at}{sep}{at}" for at in range(20_001)] + [f"last{sep}1.5", f"end{sep}x"]
    (tmp_path / "t.csv").write_text("\n".join([f"text{sep}n", *rows]) + "\n")

    result = store.shard(tmp_path / "t.csv", text_column="text", csv_options=options, **UNSPLIT)

    assert result.index.bad_rows["count"] == 0


@pytest.mark.parametrize("text_column", [None, "t"], ids=["category", "text"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_parquet_strings_that_are_not_utf8_are_bad_rows(
    tmp_path: Path, store: Store, text_column: str | None, kind: pa.DataType
) -> None:
    raw = [b"abc\xff\xfe" if at % 10 == 3 else b"word %d" % (at % 4) for at in range(200)]
    binary = pa.array(raw, pa.binary() if kind == pa.string() else pa.large_binary())
    strings = pa.Array.from_buffers(kind, 200, binary.buffers())
    pq.write_table(pa.table({"t": strings}), tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet", text_column=text_column, **UNSPLIT)
    assert (result.index.num_rows, result.index.bad_rows["count"]) == (180, 20)
    with store.open(f"{result.uri}/quarantine/bad-rows.jsonl") as stream:
        samples = [json.loads(line) for line in stream]
    assert sorted(sample["line"] for sample in samples) == list(range(4, 201, 10))
    assert all("not UTF-8" in sample["reason"] for sample in samples)


def test_parquet_column_named_twice_is_refused_unless_ignored(tmp_path: Path, store: Store) -> None:
    table = pa.Table.from_arrays([pa.array(range(100))] * 3, names=["a", "a", "b"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="a file has two columns of the same name"):
        store.shard(tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet", ignore_columns=("a",))
    assert [column.name for column in result.index.schema or ()] == ["b"]


def test_options_that_no_index_can_name_are_refused_before_anything_is_read() -> None:
    with pytest.raises(SpecError, match="csv_options"):
        ShardSettings(csv_options={"usecols": {"a", "b"}})


def test_missing_targets_are_named_by_their_line_in_the_file(tmp_path: Path, store: Store) -> None:
    labels = [None if at == 150_000 else at % 2 for at in range(150_100)]
    pq.write_table(pa.table({"a": range(150_100), "y": labels}), tmp_path / "t.parquet")
    result = store.shard(tmp_path / "t.parquet", target_column="y", max_bad_row_fraction=0.1)
    with store.open(f"{result.uri}/quarantine/bad-rows.jsonl") as stream:
        assert json.loads(stream.read())["line"] == 150_001


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Name, Vorname";Alter\n' + 'x;7\n"a;b, c";8\n' * 5, [("x", 7), ("a;b, c", 8)]),
        ("Umsatz, netto, EUR;Menge\n" + "1;2\n" * 5, [(1, 2)]),
        ("a;b\n" + "1,5;x\n2,5;y\n" * 5, [("1,5", "x"), ("2,5", "y")]),
    ],
    ids=["quoted header", "commas in the header", "decimal commas"],
)
def test_delimiter_is_that_of_the_rows(
    tmp_path: Path, store: Store, text: str, expected: list[tuple[Any, ...]]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    result = store.shard(tmp_path / "t.csv", **UNSPLIT)
    assert set(store.table(result)) == set(expected)
    assert result.index.bad_rows["count"] == 0


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", b"id,note,x\n" + b"1,,2\n" * 100 + b"7\n", "wrong number of fields: 1"),
        ("t.csv", b"id,note,x\n" + b"1,,2\n" * 100 + b"1,,2,\n", "wrong number of fields: 4"),
        ("t.jsonl", b'{"s": "ok"}\n' * 100 + b'{"s": "Z\xfcrich"}\n', "not UTF-8"),
        (
            "t.jsonl",
            b'{"k": 1}\n' * 100 + b'{"k": 1, "tree": ' + b"[" * 2000 + b"]" * 2000 + b"}\n",
            "invalid JSON",
        ),
    ],
    ids=["ragged row beside an empty column", "trailing comma", "latin-1", "deep nesting"],
)
def test_one_odd_line_is_one_bad_row(
    tmp_path: Path, store: Store, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    result = store.shard(tmp_path / name, **UNSPLIT)
    assert [str(row["reason"])[: len(reason)] for row in quarantine(store, result.uri)] == [reason]
    assert result.index.num_rows == 100


def test_interval_column_is_refused_with_its_type(tmp_path: Path, store: Store) -> None:
    table = pa.table({"k": [1, 2], "i": pa.array([pa.MonthDayNano([1, 2, 3])] * 2)})
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match=r"column 'i'\s+got: month_day_nano_interval"):
        store.shard(tmp_path / "t.arrow")


def test_parquet_column_that_a_later_file_adds_is_refused(tmp_path: Path, store: Store) -> None:
    pq.write_table(pa.table({"x": range(9)}), tmp_path / "2023.parquet")
    pq.write_table(pa.table({"x": range(9), "late": [1.5] * 9}), tmp_path / "2024.parquet")
    with pytest.raises(DataError, match=r"where: 2024.parquet\s+got: 'late' \(double\)"):
        store.shard(tmp_path)


def test_short_row_is_a_bad_row_with_csv_options_too(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a;b;c\n" + "1;;3\n" * 20 + "1;2\n" + "4;5;6\n")
    result = store.shard(tmp_path / "t.csv", csv_options={"sep": ";"}, **UNSPLIT)
    [bad] = quarantine(store, result.uri)
    assert (bad["line"], bad["reason"]) == (22, "wrong number of fields: 2 for 3 columns")
    assert result.index.num_rows == 21


@pytest.mark.parametrize(
    ("text", "options"),
    [("1;2;3\n" * 20, {"header": None, "names": ["a", "b"]}), ("a;b\n" + "1;2;\n" * 20, {})],
    ids=["a name too few", "delimiter at the ends of lines"],
)
def test_fields_without_a_name_are_refused(
    tmp_path: Path, store: Store, text: str, options: dict[str, Any]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=r"got: 3 fields\s+allowed: 2 fields: a, b"):
        store.shard(tmp_path / "t.csv", csv_options={"sep": ";", **options})
