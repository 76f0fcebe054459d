"""Every row of CSV has the fields that its header names: no guess of an index, a type, a delimiter or a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sharding.test_bad_input import quarantine
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store

ROWS = 60
WHOLE = {"validation_fraction": 0, "test_fraction": 0, "num_shards": 1}
PATHS: list[dict[str, Any]] = [{}, {"encoding": "utf-8"}]


def sharded_rows(store: Store, path: Path, **settings: Any) -> list[tuple[Any, ...]]:
    result = store.shard(path, **WHOLE, **settings)
    assert result.index.bad_rows["count"] == 0
    return store.table(result)


def refusal(store: Store, path: Path, message: str, **settings: Any) -> DataError:
    with pytest.raises(DataError, match=message) as caught:
        store.shard(path, **WHOLE, **settings)
    return caught.value


FIRST_FIELDS = {
    "steps": lambda at: at,
    "tens": lambda at: 10 * at,
    "falling": lambda at: -at,
    "same": lambda _: 5,
    "squares": lambda at: at * at,
    "text": lambda at: f"k{at}",
    "quarters": lambda at: at / 4,
}
SHORT_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("a,b\n", {}),
    "sep": ("a,b\n", {"sep": ","}),
    "names": ("", {"header": None, "names": ["a", "b"]}),
    "usecols": ("a,b\n", {"usecols": ["b"]}),
}


@pytest.mark.parametrize("kind", SHORT_HEADERS)
@pytest.mark.parametrize("first", FIRST_FIELDS)
def test_field_without_a_name_is_refused_whatever_it_holds(
    tmp_path: Path, store: Store, first: str, kind: str
) -> None:
    header, options = SHORT_HEADERS[kind]
    rows = "".join(f"{FIRST_FIELDS[first](at)},q{at % 3},{at % 5}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(header + rows)
    error = refusal(store, tmp_path / "t.csv", "more fields than", csv_options=options)
    assert (error.got, error.where) == ("3 fields", "t.csv")
    assert "names" in (error.next_step or "")


def test_delimiter_at_the_ends_of_lines_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("id,kind\n" + "".join(f"{at},q,\n" for at in range(ROWS)))
    for options in PATHS:
        error = refusal(store, tmp_path / "t.csv", "more fields than", csv_options=options)
        assert "if the lines end with a delimiter" in (error.next_step or "")


HEADERLESS = {
    "adult": [
        f"{39 + at % 9}, State-gov, {77516 + at * 7 % 11}, Bachelors, {at % 3}, <=50K"
        for at in range(ROWS)
    ],
    "sentiment140": [
        f'"{at // 40 * 4}","{1467810369 + at * 303}","Mon Apr 06 22:19:{10 + at % 40} PDT 2009","NO_QUERY","user{at}"'
        for at in range(ROWS)
    ],
    "class and text": [f"{at % 2},sentence number {at}" for at in range(ROWS)],
    "text and class": [f"sentence number {at},{at % 2}" for at in range(ROWS)],
    "id and text": [f"{at},sentence number {at}" for at in range(1, ROWS)],
    "categories": [f"{'spam' if at % 3 else 'ham'},sentence {at}" for at in range(ROWS)],
    "date and text": [f"2024-01-{at % 28 + 1:02d},sentence {at}" for at in range(ROWS)],
    "words": [["spam", "ham", "eggs"][at % 3] for at in range(ROWS)],
    "edges": [f"{at // 4},{at // 4 + at % 4 + 1}" for at in range(4, ROWS)],
    "spaces": [f"{at / 4:.3f} {at % 7} {at / 3:.3f}" for at in range(ROWS)],
}


@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
@pytest.mark.parametrize("kind", HEADERLESS)
def test_file_without_a_header_is_refused_with_two_ways_out(
    tmp_path: Path, store: Store, kind: str, options: dict[str, Any]
) -> None:
    lines = HEADERLESS[kind]
    (tmp_path / "t.csv").write_text("".join(f"{line}\n" for line in lines))
    error = refusal(store, tmp_path / "t.csv", "looks like a row of data", csv_options=options)
    assert '{"header": 0}' in (error.next_step or "")
    if kind == "spaces":
        assert '"sep": "\\\\s+"' in (error.next_step or "")
    names = [f"c{at}" for at in range(lines[0].count(",") + 1)]
    for told, count in (({"header": None, "names": names}, 0), ({"header": 0}, 1)):
        rows = sharded_rows(store, tmp_path / "t.csv", csv_options={**options, **told})
        assert len(rows) == len(lines) - count


@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
@pytest.mark.parametrize("header", ["country,2019,7", "country,2000,2005,2006"])
def test_whole_numbers_in_other_steps_name_columns_on_request(
    tmp_path: Path, store: Store, header: str, options: dict[str, Any]
) -> None:
    row = f"France{',0.5' * header.count(',')}\n"
    (tmp_path / "t.csv").write_text(f"{header}\n" + row * ROWS)
    refusal(store, tmp_path / "t.csv", "looks like a row of data", csv_options=options)
    rows = sharded_rows(store, tmp_path / "t.csv", csv_options={**options, "header": 0})
    assert len(rows) == ROWS


REAL_HEADERS = {
    "year": ("country,2019", lambda at: f"c{at % 7},{at * 1000}"),
    "years": ("country,1990,2000,2010", lambda at: f"c{at % 7},{at},{at + 1},{at + 2}"),
    "counts of words": ("doc,0,1,2,3", lambda at: f"d{at},{at % 2},{at % 3},{at % 4},{at % 5}"),
    "pixels": ("0,1,2,3", lambda at: f"{at % 9},{at % 3},{at % 5},{at % 2}"),
    "series of pandas": (",0", lambda at: f"{at},{at % 3}"),
    "fractions": ("0", lambda at: f"{at / 4}"),
    "words": ("word,count", lambda at: f"w{at},{at}"),
    "digits in names": ("x1,x2", lambda at: f"a{at % 5},b{at % 4}"),
    "repeated header": ("city,kind", lambda at: "city,kind" if at == 9 else f"c{at},k{at % 3}"),
}


@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
@pytest.mark.parametrize("kind", REAL_HEADERS)
def test_real_header_is_kept(
    tmp_path: Path, store: Store, kind: str, options: dict[str, Any]
) -> None:
    header, row = REAL_HEADERS[kind]
    (tmp_path / "t.csv").write_text(f"{header}\n" + "".join(f"{row(at)}\n" for at in range(ROWS)))
    assert len(sharded_rows(store, tmp_path / "t.csv", csv_options=options)) == ROWS


@pytest.mark.parametrize("value", ['""', "  ", "\ue000"], ids=["quoted", "spaces", "private use"])
@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
def test_every_line_of_a_single_column_is_a_row(
    tmp_path: Path, store: Store, value: str, options: dict[str, Any]
) -> None:
    lines = [value if at % 10 == 0 else f"v{at % 7}" for at in range(ROWS)]
    (tmp_path / "t.csv").write_text("t\n" + "".join(f"{line}\n" for line in lines))
    rows = sharded_rows(store, tmp_path / "t.csv", csv_options=options)
    wanted = [None if line == '""' else line for line in lines]
    assert sorted(map(str, wanted)) == sorted(str(text) for (text,) in rows)


@pytest.mark.parametrize("quoting", [0, 1, 2])
def test_style_of_quotes_changes_no_value(tmp_path: Path, store: Store, quoting: int) -> None:
    rows = "".join(f"{1234567890123456789 + at},{at:05d}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text('"id","zip"\n' + rows)
    found = sharded_rows(store, tmp_path / "t.csv", csv_options={"quoting": quoting})
    assert sorted(found) == [(1234567890123456789 + at, f"{at:05d}") for at in range(ROWS)]


@pytest.mark.parametrize("header", ["a;b;c", "a;c", "b;a"], ids=["more", "other", "other order"])
@pytest.mark.parametrize("options", [{}, {"sep": ";"}], ids=["plain", "options"])
def test_later_file_has_the_columns_of_the_first(
    tmp_path: Path, store: Store, header: str, options: dict[str, Any]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a;b\n" + "1;x\n" * ROWS)
    row = "y;2\n" if header == "b;a" else f"2;y{';z' if header == 'a;b;c' else ''}\n"
    (tmp_path / "in" / "b.csv").write_text(f"{header}\n" + row * ROWS)
    if header == "b;a":
        rows = sharded_rows(store, tmp_path / "in", csv_options=options)
        assert rows.count((1, "x")) == rows.count((2, "y")) == ROWS
        renamed = {**options, "header": 0, "names": ["n", "s"]}
        refusal(store, tmp_path / "in", "differ from those of the first", csv_options=renamed)
        return
    error = refusal(store, tmp_path / "in", "differ from those of the first", csv_options=options)
    assert error.where == "b.csv"


@pytest.mark.parametrize("text", ["m{at} ", " m{at}", "\u3000m{at}\u3000"])
def test_long_delimiter_keeps_spaces(tmp_path: Path, store: Store, text: str) -> None:
    values = [text.format(at=at % 3) for at in range(ROWS)]
    rows = "".join(f"{value}::{at}::{value}\n" for at, value in enumerate(values))
    (tmp_path / "t.csv").write_text("a::b::c\n" + rows)
    found = sharded_rows(store, tmp_path / "t.csv", csv_options={"sep": "::"})
    assert sorted(found, key=lambda row: row[1]) == [(v, at, v) for at, v in enumerate(values)]


def test_delimiter_of_spaces_may_begin_and_end_lines(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"  {at}   {at / 4}  \n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("a b\n" + rows)
    found = sharded_rows(store, tmp_path / "t.csv", csv_options={"sep": r"\s+"})
    assert sorted(found) == [(at, at / 4) for at in range(ROWS)]


HEADER_LINES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "empty line": ("Report\n\n", ";", {"header": 1, "sep": ";"}),
    "without sep": ("Logger X12\nSerial 123\n", ";", {"header": 2}),
    "commas in titles": ("a,b,c\n\nd,e,f\n", ";", {"header": 2}),
    "line of Excel": ("sep=;\n", ";", {"header": 1, "encoding": "cp1252"}),
}


@pytest.mark.parametrize("kind", HEADER_LINES)
def test_later_header_is_that_of_pandas(tmp_path: Path, store: Store, kind: str) -> None:
    title, sep, options = HEADER_LINES[kind]
    rows = "".join(f"{at}{sep}n{at % 6}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"{title}n{sep}s\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options=options, **WHOLE)
    assert [column.name for column in result.index.schema or ()] == ["n", "s"]
    assert sorted(store.table(result)) == [(at, f"n{at % 6}") for at in range(ROWS)]


def test_later_header_of_a_single_column_is_found(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("Report\n\nid\n" + "".join(f"a{at}\n" for at in range(ROWS)))
    result = store.shard(tmp_path / "t.csv", csv_options={"header": 1}, **WHOLE)
    assert [column.name for column in result.index.schema or ()] == ["id"]
    assert result.index.num_rows == ROWS


def test_header_that_the_file_lacks_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a;b\n" + "1;2\n" * ROWS)
    refusal(
        store, tmp_path / "t.csv", f"the file has only {ROWS + 1} lines", csv_options={"header": 70}
    )


WRONG_OPTIONS: list[dict[str, Any]] = [
    {"header": [0, 1]},
    {"header": -1},
    {"header": True},
    {"header": "first"},
    {"quoting": 4},
    {"skiprows": 1.5},
    {"skiprows": [0, -1]},
    {"names": "ab"},
    {"names": []},
    {"names": [["a"], "b"]},
    {"usecols": 1},
    {"usecols": [["a"]]},
    {"sep": "(;|,)"},
    {"sep": "||("},
    {"sep": 1},
    {"comment": ""},
    {"quotechar": "''"},
    {"quotechar": ""},
    {"quotechar": None},
    {"escapechar": 1},
    {"decimal": ""},
    {"decimal": None},
    {"decimal": ".."},
    {"decimal": "-"},
    {"thousands": ""},
    {"thousands": "1"},
    {"thousands": "."},
    {"encoding": "klingon"},
    {"encoding": "rot13"},
    {"encoding": 1252},
    {"encoding_errors": "nosuch"},
    {"encoding_errors": "surrogateescape"},
    {"encoding_errors": "xmlcharrefreplace"},
    {"dialect": "excell"},
]


@pytest.mark.parametrize("options", WRONG_OPTIONS, ids=str)
def test_option_that_is_no_rule_of_csv_is_refused_at_once(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(SpecError, match=rf"1 problem(.|\n)*csv_options\.{name}: .*; allowed: "):
        ShardSettings(csv_options=options)


@pytest.mark.parametrize("marks", [(",", ","), (".", ".")])
def test_marks_of_numbers_differ(marks: tuple[str, str]) -> None:
    options = dict(zip(("decimal", "thousands"), marks, strict=True))
    with pytest.raises(SpecError, match=r"csv_options\.thousands: is also the decimal mark"):
        ShardSettings(csv_options=options)


@pytest.mark.parametrize("name", ["quotechar", "escapechar"])
@pytest.mark.parametrize("delimiter", ["sep", "delimiter"])
def test_delimiter_has_no_other_meaning(name: str, delimiter: str) -> None:
    with pytest.raises(SpecError, match=rf"csv_options\.{name}: is also the delimiter"):
        ShardSettings(csv_options={delimiter: "'", name: "'"})


RIGHT_OPTIONS: list[dict[str, Any]] = [
    {"quotechar": None, "quoting": 3},
    {"quotechar": "'", "escapechar": None},
    {"decimal": ",", "thousands": None},
    {"encoding": None, "encoding_errors": None, "dialect": None, "sep": None, "comment": None},
    *({"encoding_errors": each} for each in ("ignore", "replace", "backslashreplace")),
    *({"encoding": each} for each in ("UTF-16", "latin1", "windows-1252", "shift_jis")),
    *({"dialect": each} for each in ("excel", "excel-tab", "unix")),
]


@pytest.mark.parametrize("options", RIGHT_OPTIONS, ids=str)
def test_options_of_pandas_are_accepted(options: dict[str, Any]) -> None:
    assert ShardSettings(csv_options=options).csv_options == options


@pytest.mark.parametrize("columns", [["number"], [-1], ["n", 7]], ids=str)
def test_selected_column_that_the_file_lacks_is_named(
    tmp_path: Path, store: Store, columns: list[str | int]
) -> None:
    (tmp_path / "t.csv").write_text("n,numbers\n" + "1,2\n" * ROWS)
    error = refusal(store, tmp_path / "t.csv", "usecols", csv_options={"usecols": columns})
    assert error.where == "t.csv"
    assert error.got == repr(columns[-1])
    assert error.allowed == "n, numbers, or a position from 0 to 1"
    is_near = columns == ["number"]
    assert ("did you mean 'numbers'?" in str(error)) == is_near


@pytest.mark.parametrize("encoding", [None, "ascii", "utf-16"])
def test_bytes_of_another_encoding_have_their_remedy(
    tmp_path: Path, store: Store, encoding: str | None
) -> None:
    rows = "".join(f"{at};caf\xe9\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_bytes(f"n;s\n{rows}".encode("cp1252"))
    options = {"sep": ";", "encoding": encoding}
    error = refusal(store, tmp_path / "t.csv", "encoding", csv_options=options)
    assert (error.where, error.allowed) == (
        "t.csv",
        f"bytes that are valid in {encoding or 'utf-8'}",
    )
    assert '"encoding": "cp1252"' in (error.next_step or "")


def test_content_that_is_refused_has_no_remedy_for_permissions(
    tmp_path: Path, store: Store
) -> None:
    (tmp_path / "t.csv").write_text("n,s\n" + "1,x\n" * ROWS + '2,"y\n')
    for options in PATHS:
        error = refusal(store, tmp_path / "t.csv", "never closed", csv_options=options)
        assert "permissions" not in str(error)


@pytest.mark.parametrize("options", [{}, {"decimal": "."}], ids=["plain", "options"])
def test_delimiter_is_not_guessed_between_two(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    rows = "".join(f"A{at};{at},{at % 90 + 10}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("Artikel;Preis, EUR\n" + rows)
    error = refusal(store, tmp_path / "t.csv", "two delimiters", csv_options=options)
    for delimiter in ",;":
        assert f'{{"sep": "{delimiter}"}}' in (error.next_step or "")
    decimal = {"sep": ";", "decimal": ","}
    found = sharded_rows(store, tmp_path / "t.csv", csv_options=decimal)
    assert ("A7", 7.17) in found


@pytest.mark.parametrize("options", [{}, {"encoding": "cp1252"}, {"sep": ";"}], ids=str)
def test_delimiter_line_of_excel_is_no_header(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    for header, row in (("name;city", "a{at};c"), ("id;name;city", "{at};a;c")):
        rows = "".join(row.format(at=at) + "\n" for at in range(ROWS))
        (tmp_path / "t.csv").write_text(f"sep=;\n{header}\n{rows}")
        error = refusal(store, tmp_path / "t.csv", "names its delimiter", csv_options=options)
        assert '"skiprows": 1' in (error.next_step or "")


@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
def test_repeated_name_has_its_remedies(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    (tmp_path / "t.csv").write_text("p,x,p\n" + "e,s,k\n" * ROWS)
    error = refusal(store, tmp_path / "t.csv", "two columns of the same name", csv_options=options)
    assert '{"header": null, "names": ["a", "b"]}' in (error.next_step or "")


def test_delimiter_of_two_characters_has_its_remedy(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at}||x||{at}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("a||b||c\n" + rows)
    error = refusal(store, tmp_path / "t.csv", "two columns of the same name")
    assert r'{"sep": "\\|\\|"}' in (error.next_step or "")
    found = sharded_rows(store, tmp_path / "t.csv", csv_options={"sep": r"\|\|"})
    assert sorted(found) == [(at, "x", at) for at in range(ROWS)]


def test_bad_row_is_named_by_its_line_with_options(tmp_path: Path, store: Store) -> None:
    lines = ["# made by hand", "a;b", "1;x", '2;"y', 'z"', "# note", "3;x;4", "5", "", "6;x"]
    (tmp_path / "t.csv").write_text("".join(f"{line}\n" for line in lines))
    options = {"sep": ";", "comment": "#"}
    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=1.0, **WHOLE)
    found = [(row["line"], row["reason"]) for row in quarantine(store, result.uri)]
    reason = "wrong number of fields: {} for 2 columns"
    assert found == [(7, reason.format(3)), (8, reason.format(1))]
    assert result.index.num_rows == 3


def test_comment_behind_an_empty_field_leaves_a_short_row(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a\tb\tc\n" + "1\t2\t3\n" * ROWS + "\t# no\t1\n  # note\n")
    options = {"sep": "\t", "comment": "#"}
    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1, **WHOLE)
    assert result.index.bad_rows["count"] == 1


def test_line_of_spaces_beside_columns_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * ROWS + "   \n")
    for options in PATHS:
        result = store.shard(
            tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1, **WHOLE
        )
        assert result.index.bad_rows["count"] == 1


def test_escaped_quotes_that_never_close_have_their_remedy(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at},x\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text("n,s\n" + rows + '9,"a \\""\n')
    for options in PATHS:
        error = refusal(store, tmp_path / "t.csv", "never closed", csv_options=options)
        assert f"line {ROWS + 2}" in str(error)
        assert "escapechar" in str(error)


@pytest.mark.parametrize("sep", [";", "\t", "|", ","], ids=["semicolon", "tab", "bar", "comma"])
@pytest.mark.parametrize("num_rows", [1, ROWS])
@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
def test_header_of_any_length_is_split(
    tmp_path: Path, store: Store, options: dict[str, Any], num_rows: int, sep: str
) -> None:
    names = [f"{at}, {'long' * 2_000}; | \t" for at in range(15)]
    header = sep.join(name.replace(sep, "") for name in names)
    rows = (sep.join(str(at * column) for column in range(15)) for at in range(num_rows))
    (tmp_path / "t.csv").write_text(f"{header}\n" + "".join(f"{row}\n" for row in rows))
    found = sharded_rows(store, tmp_path / "t.csv", csv_options=options)
    assert sorted(found) == [tuple(at * each for each in range(15)) for at in range(num_rows)]


def test_rows_below_a_long_header_are_compared_with_it(tmp_path: Path, store: Store) -> None:
    names = [f"{'name' * 2_000}{at}" for at in range(15)]
    rows = [f"{at}{';x' * 15}\n" for at in range(ROWS)]
    (tmp_path / "t.csv").write_text(f"{';'.join(names)}\n{''.join(rows)}")
    for options in PATHS:
        error = refusal(store, tmp_path / "t.csv", "more fields than", csv_options=options)
        assert error.got == "16 fields"


ODD_LINE_ENDS = {"doubled": "\r\r\n", "windows": "\r\n"}


@pytest.mark.parametrize("end", ODD_LINE_ENDS.values(), ids=ODD_LINE_ENDS)
@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
def test_doubled_carriage_return_ends_one_line(
    tmp_path: Path, store: Store, options: dict[str, Any], end: str
) -> None:
    values = ["", '"in\r\r\nquotes"', *(f"v{at % 7}" for at in range(ROWS)), "", "a b"]
    for row in ("{}", "{},1"):
        lines = [row.format("t").replace("1", "n"), *(row.format(value) for value in values)]
        (tmp_path / "t.csv").write_bytes("".join(f"{line}{end}" for line in lines).encode())
        rows = sharded_rows(store, tmp_path / "t.csv", csv_options=options)
        found = sorted(str(text) for text, *_ in rows)
        assert found == sorted(value.strip('"') or "None" for value in values)


@pytest.mark.parametrize("options", PATHS, ids=["plain", "options"])
def test_doubled_carriage_return_changes_no_line_number(
    tmp_path: Path, store: Store, options: dict[str, Any]
) -> None:
    lines = ["t,n", *(f"v,{at}" for at in range(ROWS)), "1,2,3"]
    (tmp_path / "t.csv").write_bytes("".join(f"{line}\r\r\n" for line in lines).encode())
    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.1, **WHOLE)
    assert [row["line"] for row in quarantine(store, result.uri)] == [ROWS + 2]
