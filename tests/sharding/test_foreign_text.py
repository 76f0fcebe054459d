"""Text tables as other tools write them: quotes, marks of byte order, delimiters, spellings of numbers."""

from __future__ import annotations

import csv
import gzip
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.sharding.test_bad_input import quarantine
from tests.sharding.test_foreign_data import names_by_part
from tests.sharding.test_parts import sharded
from trainyard.errors import DataError, SpecError
from trainyard.sharding.csv_quotes import open_quote
from trainyard.sharding.line_blocks import line_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding import ShardingResult

ROWS = 400
BOM = b"\xef\xbb\xbf"


LATE_LINES = {
    "none": (b"", 0),
    "no JSON": (b'{"n": oops}\n', 1),
    "fraction": (b'{"n": 7.5, "s": "a"}\n', 0),
    "column": (b'{"n": 7, "s": "a", "late": 1}\n', 0),
    "bytes": (b'{"n": 7, "s": "\xff"}\n', 1),
    "empty": (b"\n", 0),
    "second mark": (BOM + b"\n", 0),
    "second file": (BOM + b'{"n": 7, "s": "a"}\n', 0),
}


@pytest.mark.parametrize("late", LATE_LINES)
@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
def test_mark_of_byte_order_costs_no_row_of_jsonl(
    tmp_path: Path, store: Store, late: str, num_parts: int
) -> None:
    content, bad = LATE_LINES[late]
    (tmp_path / "in").mkdir()
    for name in names_by_part("jsonl"):
        lines = b"".join(b'{"n": %d, "s": "a"}\r\n' % at for at in range(ROWS))
        (tmp_path / "in" / name).write_bytes(BOM + lines + content)
    result = sharded(store, tmp_path / "in", num_parts, max_bad_row_fraction=0.1)
    assert [row[0] for row in store.table(result)].count(0) == 2
    assert result.index.bad_rows["count"] == 2 * bad


def rows_of(store: Store, result: ShardingResult) -> list[tuple[Any, ...]]:
    return sorted(store.table(result), key=lambda row: row[0])


ONE_COLUMN = {
    "text value": [f"value {at}" for at in range(ROWS)],
    "comments": [f"It was fine {at}" for at in range(ROWS)],
    "customer_name": [f"M\xfcller {at}" for at in range(ROWS)],
    "price": [str(at / 4) for at in range(ROWS)],
}


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8"])
@pytest.mark.parametrize("name", ONE_COLUMN)
def test_one_column_in_another_encoding_is_one_column(
    tmp_path: Path, store: Store, name: str, encoding: str
) -> None:
    text = "".join(f"{value}\n" for value in [name, *ONE_COLUMN[name]])
    (tmp_path / "t.csv").write_text(text, encoding=encoding)
    result = store.shard(tmp_path / "t.csv", csv_options={"encoding": encoding})
    assert [column.name for column in result.index.schema or ()] == [name]
    assert result.index.num_rows == ROWS


DELIMITED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "comma": ("{n},{s}", "n,full name", {}),
    "semicolon": ("{n};{s}", "n;full name", {}),
    "pipe": ("{n}|{s}", "n|full name", {}),
    "tab": ("{n}\t{s}", "n\tfull name", {}),
    "lines to skip": ("{n};{s}", "made by, tool, 7\na,b,c\nn;full name", {"skiprows": 2}),
    "comment": ("{n};{s}", "# made, by, tool\nn;full name", {"comment": "#"}),
    "other quotes": ("{n};'{s}'", "n;'full, name'", {"quotechar": "'"}),
    "no sep": ("{n};{s}", "n;full name", {"sep": None}),
}


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
@pytest.mark.parametrize("kind", DELIMITED)
def test_delimiter_is_found_with_options_as_without(
    tmp_path: Path, store: Store, kind: str, encoding: str
) -> None:
    line, header, options = DELIMITED[kind]
    names = (
        ["M\xfcller, Ada", "B C D"] if kind in {"semicolon", "other quotes"} else ["A B", "C D E"]
    )
    rows = "".join(line.format(n=at, s=names[at % 2]) + "\r\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(header + "\r\n" + rows, encoding=encoding, newline="")
    result = store.shard(tmp_path / "t.csv", csv_options={"encoding": encoding, **options})
    assert rows_of(store, result) == [(at, names[at % 2]) for at in range(ROWS)]


def test_decimal_comma_is_no_delimiter(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at};{at},5\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(rows)
    options = {"decimal": ",", "header": None, "names": ["n", "x"]}
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    assert rows_of(store, result) == [(at, at + 0.5) for at in range(ROWS)]


NO_ROWS = {"header": b"n;x\n", "line": b"\n", "gz": b"", "mark": BOM, "bad": b"n;x\n1\n"}


@pytest.mark.parametrize("content", NO_ROWS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("options", [{}, {"sep": ";"}], ids=["plain", "options"])
def test_csv_file_without_rows_is_skipped(
    tmp_path: Path,
    store: Store,
    content: str,
    is_first: bool,
    options: dict[str, str],
) -> None:
    (tmp_path / "in").mkdir()
    empty, full = names_by_part("csv.gz")[:: 1 if is_first else -1]
    rows = "".join(f"{at};{at * 2}\n" for at in range(ROWS))
    (tmp_path / "in" / full).write_bytes(gzip.compress(f"n;x\n{rows}".encode()))
    (tmp_path / "in" / empty).write_bytes(gzip.compress(NO_ROWS[content]))
    num_parts = 0 if is_first else 2
    result = sharded(
        store, tmp_path / "in", num_parts, csv_options=options, max_bad_row_fraction=0.01
    )
    assert rows_of(store, result) == [(at, at * 2) for at in range(ROWS)]
    assert result.index.bad_rows["count"] == (content == "bad")


@pytest.mark.parametrize("content", ["\n", "n;x\n"])
def test_csv_without_any_row_is_refused_with_options_too(
    tmp_path: Path, store: Store, content: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=r"the first line of a csv file is empty|has no rows"):
        store.shard(tmp_path / "t.csv", csv_options={"sep": ";"})


QUOTING: list[dict[str, Any]] = [{}, {"encoding": "utf-8"}]
TITLES = ["Alien", "Heat", "Jaws", "Ran"]


def write_titles(
    path: Path, odd: dict[int, str], delimiter: str = "\t", last: str = "{at}"
) -> None:
    lines = [
        f"{at}{delimiter}{odd.get(at, TITLES[at % 4])}{delimiter}{last.format(at=at % 9)}\n"
        for at in range(ROWS)
    ]
    path.write_text(delimiter.join(["n", "title", "r"]) + "\n" + "".join(lines))


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
@pytest.mark.parametrize("header", ["5.1,3.5,setosa", "-1,2,3", "7,2,12", "3", "1e5,x"])
def test_row_of_data_is_not_taken_as_the_header(
    tmp_path: Path, store: Store, header: str, options: dict[str, Any]
) -> None:
    names = [f"c{at}" for at in range(header.count(",") + 1)]
    rows = "".join(",".join([f"{at}"] * (len(names) - 1) + [f"t{at}"]) + "\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    with pytest.raises(DataError, match="looks like a row of data") as caught:
        store.shard(tmp_path / "t.csv", csv_options=options)
    assert header.replace(",", ", ") in str(caught.value)

    for told, count in (({"header": None, "names": names}, ROWS + 1), ({"header": 0}, ROWS)):
        result = store.shard(tmp_path / "t.csv", csv_options={**options, **told})
        assert len(rows_of(store, result)) == count


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
@pytest.mark.parametrize("header", ["0,1,2,3", "2000,2005,2010", "country,2019", ",0,x", "0"])
def test_numbers_that_name_columns_are_a_header(
    tmp_path: Path, store: Store, header: str, options: dict[str, Any]
) -> None:
    width = len(header.split(","))
    rows = "".join(",".join([f"{at}.5"] * width) + "\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    assert len(rows_of(store, result)) == ROWS


SWALLOWING = {
    "one quote twice": {50: '"', 60: '"'},
    "one quote and inches": {50: '"Giliap', 60: '5"'},
    "unbalanced, then quoted": {50: '"Giliap', 60: '"Rome" was'},
    "unbalanced, then whole": {50: '"Giliap', 60: '"Rome"'},
    "neighbors": {50: '"', 51: '"'},
}


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
@pytest.mark.parametrize("odd", SWALLOWING)
@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_quote_that_joins_rows_is_counted_with_every_line(
    tmp_path: Path, store: Store, odd: str, options: dict[str, Any], delimiter: str
) -> None:
    path = tmp_path / ("t.tsv" if delimiter == "\t" else "t.csv")
    first, last = SWALLOWING[odd]
    write_titles(path, SWALLOWING[odd], delimiter)
    result = store.shard(path, max_bad_row_fraction=0.1, csv_options=options)
    bad = quarantine(store, result.uri)
    assert [row["line"] for row in bad] == [at + 2 for at in range(first, last + 1)]
    assert all("quoting" in str(row["reason"]) for row in bad)
    wanted = [at for at in range(ROWS) if not first <= at <= last]
    assert [row[0] for row in rows_of(store, result)] == wanted


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
def test_text_after_a_closing_quote_is_a_bad_row(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    write_titles(tmp_path / "t.tsv", dict.fromkeys(range(0, ROWS, 100), '"Rome" was'))
    result = store.shard(tmp_path / "t.tsv", max_bad_row_fraction=0.1, csv_options=options)
    bad = quarantine(store, result.uri)
    assert [str(row["reason"]).split(":")[0] for row in bad] == ["text after a closing quote"] * 4
    with pytest.raises(DataError, match='"quoting": 3'):
        store.shard(tmp_path / "t.tsv", max_bad_row_fraction=0.0, csv_options=options)


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
def test_field_behind_a_stray_quote_is_part_of_its_bad_row(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    rows = "".join(f"a{at % 9},{at}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text('s,n\n"a"b,"1\nc",2\n' + rows)
    result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1, csv_options=options)
    assert result.index.num_rows == ROWS
    assert [row["line"] for row in quarantine(store, result.uri)] == [2, 3]


@pytest.mark.parametrize("block_bytes", [300, 4 * 1024**2])
@pytest.mark.parametrize("seed", range(3))
def test_every_line_is_read_or_counted_alike_on_every_path(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, seed: int, block_bytes: int
) -> None:
    small = partial(line_blocks, block_bytes=block_bytes)
    monkeypatch.setattr("trainyard.sharding.csv_rows.line_blocks", small)
    random = Random(seed)  # noqa: S311 - rows of a test
    odd = ['"', '"Rome" was', '"x', '5"', '"ok"', '"a ""b"" c"', "", '"c,d"']
    write_titles(
        tmp_path / "t.csv",
        {at: random.choice(odd) for at in range(ROWS - 9) if random.random() < 0.1} | {399: '"'},
        ",",
    )
    content = (tmp_path / "t.csv").read_bytes()
    if content.count(b'"') and open_quote(content, b",") is not None:
        (tmp_path / "t.csv").write_bytes(content + b'"\n')
    found = []
    for options in QUOTING:
        result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=1.0)
        found.append((rows_of(store, result), result.index.bad_rows["count"]))
        assert len(found[-1][0]) + found[-1][1] in {ROWS, ROWS + 1}
        assert not any("\n" in (row[1] or "") for row in found[-1][0])
    assert found[0] == found[1]


@pytest.mark.parametrize("odd", SWALLOWING)
def test_quotes_as_characters_are_read_with_the_option_of_the_message(
    tmp_path: Path, store: Store, odd: str
) -> None:
    write_titles(tmp_path / "t.tsv", SWALLOWING[odd])
    result = store.shard(tmp_path / "t.tsv", csv_options={"quoting": 3})
    wanted = [(at, SWALLOWING[odd].get(at, TITLES[at % 4]), at % 9) for at in range(ROWS)]
    assert rows_of(store, result) == wanted


def test_one_quote_joins_no_rows_of_text_columns(tmp_path: Path, store: Store) -> None:
    write_titles(tmp_path / "t.tsv", {50: '"', 60: '"'}, last="x")
    text = (tmp_path / "t.tsv").read_text().replace("\n", "\n" + "w")  # no column of numbers
    (tmp_path / "t.tsv").write_text(text.removesuffix("w"))
    result = store.shard(tmp_path / "t.tsv", max_bad_row_fraction=0.1)
    assert result.index.num_rows == ROWS - 11
    assert result.index.bad_rows["count"] == 11


LEGITIMATE = {
    "line end": '"a\nb"',
    "three lines": '"a\n\nb c"',
    "delimiters": '"a, b\nc, d"',
    "doubled": '"say ""hi""\nnow"',
    "carriage return": '"a\r\nb"',
    "table": '"1,2,3\n4,5,6\n7,8,9"',
    "words in rows": '"a\nb,c,d\ne"',
    "only a line end": '"\n"',
    "empty": '""',
    "quote": '""""',
    "inches": '5" pipe',
}


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
@pytest.mark.parametrize("kind", LEGITIMATE)
def test_line_ends_in_quoted_fields_are_kept(
    tmp_path: Path, store: Store, kind: str, options: dict[str, Any]
) -> None:
    write_titles(tmp_path / "t.csv", dict.fromkeys(range(0, ROWS, 7), LEGITIMATE[kind]), ",")
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    with (tmp_path / "t.csv").open(newline="") as stream:
        _, *rows = csv.reader(stream)
    assert rows_of(store, result) == [(int(n), title or None, int(r)) for n, title, r in rows]


def test_spaces_after_a_closing_quote_cost_no_row_silently(tmp_path: Path, store: Store) -> None:
    write_titles(tmp_path / "t.csv", {7: '"a"  '}, ",")
    result = store.shard(tmp_path / "t.csv")
    assert (7, "a  ", 7) in store.table(result)
    options = {"encoding": "utf-8"}  # pandas does not read such a row
    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1)
    assert result.index.bad_rows["count"] == 1


def test_line_ends_of_one_column_are_kept_and_named(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["text", *(f"t{at}" for at in range(ROWS)), '"', "t1", '"']
    (tmp_path / "t.csv").write_text("".join(f"{line}\n" for line in lines))
    result = store.shard(tmp_path / "t.csv")
    assert result.index.num_rows == ROWS + 1
    assert "t.csv: lines 402 to 404 are one quoted field" in caplog.text


def test_quote_that_is_never_closed_has_a_remedy(tmp_path: Path, store: Store) -> None:
    for options in QUOTING:
        write_titles(tmp_path / "t.tsv", {390: '"Giliap'})
        with pytest.raises(DataError, match=r"line 392 is never closed(.|\n)*quoting"):
            store.shard(tmp_path / "t.tsv", csv_options=options)


def test_long_field_is_kept_with_options(tmp_path: Path, store: Store) -> None:
    write_titles(tmp_path / "t.tsv", {7: "z" * 200_000})
    csv.field_size_limit(131_072)  # as in a new process
    result = store.shard(tmp_path / "t.tsv", csv_options={"encoding": "utf-8"})
    assert result.index.num_rows == ROWS


def test_quotes_in_comments_cost_no_row(tmp_path: Path, store: Store) -> None:
    rows = "".join(f'{at},"a"\n# at,"{at}" is\n' for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,s\n" + rows)
    result = store.shard(tmp_path / "t.csv", csv_options={"comment": "#"})
    assert rows_of(store, result) == [(at, "a") for at in range(ROWS)]


@pytest.mark.parametrize(
    ("value", "others"),
    [("0xFF", "{}"), ("0X1f", "{}"), ("0xFF", "{}.5"), ("-nan", "{}.5"), ("NAN", "{}.5")],
)
@pytest.mark.parametrize("ragged", ["", "1,2,3\n"], ids=["whole", "ragged"])
def test_other_spellings_of_numbers_are_bad_rows_on_every_path(
    tmp_path: Path, store: Store, value: str, others: str, ragged: str
) -> None:
    values = [value if at == 7 else others.format(at) for at in range(ROWS)]
    rows = "".join(f"{at},{each}\n" for at, each in enumerate(values))
    (tmp_path / "t.csv").write_text("n,x\n" + rows + ragged)
    for options in QUOTING:
        result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1, csv_options=options)
        assert result.index.bad_rows["count"] == 1 + bool(ragged)


@pytest.mark.parametrize("ragged", ["", "1,2,3\n"], ids=["whole", "ragged"])
def test_infinity_of_java_is_one_on_every_path(tmp_path: Path, store: Store, ragged: str) -> None:
    spelled = ["Infinity", "-Infinity", "INFINITY", "0.5"]
    rows = "".join(f"{at},{spelled[at % 4]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,x\n" + rows + ragged)
    for options in QUOTING:
        result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.1, csv_options=options)
        wanted = [(at, float(spelled[at % 4])) for at in range(ROWS)]
        assert rows_of(store, result) == wanted


@pytest.mark.parametrize("mark", ["thousands", "decimal"])
def test_a_mark_of_numbers_that_alone_splits_the_header_is_the_delimiter(
    tmp_path: Path, store: Store, mark: str
) -> None:
    number = {"thousands": "1,234.50", "decimal": "1234,50"}[mark]
    rows = "".join(f'{at},town {at % 7},"{number}"\n' for at in range(ROWS))
    (tmp_path / "t.csv").write_text("id,city,revenue\n" + rows)

    result = store.shard(tmp_path / "t.csv", csv_options={mark: ","})

    assert rows_of(store, result) == [(at, f"town {at % 7}", 1234.5) for at in range(ROWS)]


CODES = [["250.00", "250.0"], ["001.1", "1.1"], ["1E3", "1000"]]


@pytest.mark.parametrize("options", QUOTING, ids=["plain", "options"])
@pytest.mark.parametrize("codes", CODES, ids=["end", "start", "exponent"])
def test_codes_with_dots_that_become_one_number_are_named(
    tmp_path: Path,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    codes: list[str],
    options: dict[str, Any],
) -> None:
    rows = "".join(f"{at},{codes[at % 2]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,code\n" + rows)
    store.shard(tmp_path / "t.csv", csv_options=options)
    assert "column 'code'" in caplog.text
    assert "category_columns" in caplog.text
    caplog.clear()
    kept = store.shard(tmp_path / "t.csv", csv_options=options, category_columns=("code",))
    assert {row[1] for row in store.table(kept)} == set(codes)
    assert "column 'code'" not in caplog.text


def test_prices_are_no_codes(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{at / 4},{at / 4:.2f},{at // 4},{at}e1\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("a,b,c,d\n" + rows)
    store.shard(tmp_path / "t.csv")
    assert "category_columns" not in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"usecols": ["a", "c"]},
        {"usecols": [0, 2]},
        {"usecols": ["c", "a"]},
        {"usecols": [0, 2], "header": 0, "names": ["a", "c"]},
        {"usecols": ["a", "c"], "header": 0, "names": ["a", "b", "c"]},
    ],
    ids=["names", "numbers", "other order", "two new names", "new names"],
)
def test_rows_of_another_width_are_bad_rows_with_usecols(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    rows = "".join(f"{at};{at * 2};{at * 3}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("a;b;c\n" + rows + "7;8\n1;2;3;4\n")
    settings = {"csv_options": {"sep": ";", **options}, "max_bad_row_fraction": 0.1}
    result = store.shard(tmp_path / "t.csv", **settings)
    assert result.index.bad_rows["count"] == 2
    assert [column.name for column in result.index.schema or ()] == ["a", "c"]
    assert rows_of(store, result) == [(at, at * 3) for at in range(ROWS)]


def test_row_without_a_field_that_usecols_omits_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at};{at * 2};{at * 3}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("a;b;c\n" + rows + "7;8\n7;;\n")
    settings = {"csv_options": {"sep": ";", "usecols": ["a"]}, "max_bad_row_fraction": 0.1}
    result = store.shard(tmp_path / "t.csv", **settings)
    assert result.index.bad_rows["count"] == 1
    assert result.index.num_rows == ROWS + 1


def test_unknown_column_of_usecols_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a;b\n" + "1;2\n" * ROWS)
    for columns in (["a", "z"], [0, 9]):
        with pytest.raises(DataError, match="usecols"):
            store.shard(tmp_path / "t.csv", csv_options={"sep": ";", "usecols": columns})


ROW_NAMES = {
    "pandas": (",t\n", "{n},t{c}\n", {}),
    "R, quoted": ('"","t"\n', '"{n}","t{c}"\n', {}),
    "semicolon": (";t\n", "{n};t{c}\n", {"sep": ";"}),
    "encoding": (",t\n", "{n},t{c}\n", {"encoding": "utf-8"}),
    "two characters": ("::t\n", "{n}::t{c}\n", {"sep": "::"}),
    "later header": ("a,table\n,t\n", "{n},t{c}\n", {"header": 1}),
    "line of units": (",t\nm,s\n", "{n},t{c}\n", {"skiprows": [1]}),
    "last": ("t,\n", "t{c},{n}\n", {"encoding": "utf-8"}),
    "usecols": ("x,,t\n", "1,{n},t{c}\n", {"usecols": [1, 2]}),
}


def write_rows(path: Path, header: str, row: str) -> None:
    path.write_text(header + "".join(row.format(n=at, c=at % 3) for at in range(ROWS)))


@pytest.mark.parametrize("case", ROW_NAMES)
def test_column_without_a_name_is_ignored_by_its_empty_name(
    tmp_path: Path, store: Store, case: str
) -> None:
    header, row, options = ROW_NAMES[case]
    write_rows(tmp_path / "t.csv", header, row)
    settings = {"ignore_columns": ("",), "validation_fraction": 0, "test_fraction": 0}
    result = store.shard(tmp_path / "t.csv", csv_options=options, **settings)
    assert [column.name for column in result.index.schema or ()] == ["t"]
    assert result.index.num_rows == ROWS


def test_column_without_a_name_has_its_type_with_options(tmp_path: Path, store: Store) -> None:
    write_rows(tmp_path / "t.csv", ",t\n", "{n},t{c}\n")
    with (tmp_path / "t.csv").open("a") as file:
        file.write('x,t1\n5,"t1" more\n')
    for options in ({}, {"encoding": "utf-8"}):
        result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1)
        assert [column.name for column in result.index.schema or ()] == ["", "t"]
        assert rows_of(store, result) == [(at, f"t{at % 3}") for at in range(ROWS)]


@pytest.mark.parametrize("options", [{}, {"encoding": "utf-8"}], ids=["plain", "options"])
def test_column_that_is_called_unnamed_keeps_its_name(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    write_rows(tmp_path / "t.csv", "Unnamed: 0,t\n", "{n},t{c}\n")
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    assert [column.name for column in result.index.schema or ()] == ["Unnamed: 0", "t"]


def test_several_columns_without_a_name_keep_the_names_of_pandas(
    tmp_path: Path, store: Store
) -> None:
    write_rows(tmp_path / "t.csv", ",t,\n", "{n},t{c},{n}\n")
    result = store.shard(tmp_path / "t.csv", csv_options={"sep": ","})
    found = [column.name for column in result.index.schema or ()]
    assert found == ["Unnamed: 0", "t", "Unnamed: 2"]


@pytest.mark.parametrize("setting", ["ignore_columns", "category_columns"])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("options", [{}, {"encoding": "utf-8"}], ids=["plain", "options"])
def test_unknown_name_in_a_list_of_columns_is_refused(
    tmp_path: Path, store: Store, setting: str, name: str, options: dict[str, Any]
) -> None:
    write_rows(tmp_path / "t.csv", ",t\n" if name else "n,t\n", "{n},t{c}\n")
    with pytest.raises(
        SpecError, match=f"{setting}: names a column that the table does not have; got '{name}'"
    ) as caught:
        store.shard(tmp_path / "t.csv", csv_options=options, **{setting: (name,)})
    assert ("allowed: '', 't'" if name else "allowed: 'n', 't'") in str(caught.value)
