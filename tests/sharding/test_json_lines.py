"""JSON lines: one object per line, each key once, whether Arrow parses a block or each line is parsed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.sharding.test_bad_input import UNSPLIT, quarantine
from trainyard.errors import DataError
from trainyard.sharding import DataFormat, LocalObjects, ShardSettings
from trainyard.sharding.quarantine import BadRows
from trainyard.sharding.reading import Reading
from trainyard.sharding.source_files import SourceFile
from trainyard.sharding.table_schema import ReplanNeededError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding.table_batch import Table

BOM = b"\xef\xbb\xbf"
GOOD = b"".join(b'{"id": %d}\n' % at for at in range(100))
ODD_LINES = {
    "key twice": (b'{"id": 200, "id": 201}\n', ["repeated key"]),
    "key twice, escaped": (b'{"id": 200, "\\u0069d": 201}\n', ["repeated key"]),
    "new key twice": (b'{"id": 200, "late": 1, "late": 2}\n', ["repeated key"]),
    "null": (b"null\n", ["not a JSON object"]),
    "key of half a surrogate pair": (b'{"id": 200, "\\ud800": 1}\n', ["not UTF-8"]),
    "two objects": (b'{"id": 200}{"id": 201}\n', ["invalid JSON"]),
    "object of two lines": (b'{"id":\n200}\n', ["invalid JSON", "invalid JSON"]),
    "both": (b'{"id": 200} {"id": 201}\n{"id": 202\n}\n', ["invalid JSON"] * 3),
    "two objects, then a nested one": (
        b'{"id": 200}{"id": 201}\n{"id":\n[{}\n,{}]}\n',
        ["invalid JSON"] * 4,
    ),
    "carriage return alone": (b'{"id": 200}\r{"id": 201}\n', ["invalid JSON"]),
}


@pytest.mark.parametrize("kind", ODD_LINES)
@pytest.mark.parametrize("end", [b"", b"{\n"], ids=["alone", "beside a bad line"])
def test_line_that_is_not_one_object_with_unique_keys_is_a_bad_row(
    tmp_path: Path, store: Store, kind: str, end: bytes
) -> None:
    lines, reasons = ODD_LINES[kind]
    (tmp_path / "t.jsonl").write_bytes(GOOD + lines + end)
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT)
    found = [
        (row["line"], str(row["reason"]).split(":")[0]) for row in quarantine(store, result.uri)
    ]
    expected = [*reasons, *["invalid JSON"] * len(end.splitlines())]
    assert found == list(enumerate(expected, start=101))
    assert sorted(row[0] for row in store.table(result)) == list(range(100))


def test_repeated_key_is_named(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.jsonl").write_bytes(GOOD + b'{"id": 200, "id": 201}\n')
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT)
    assert [row["reason"] for row in quarantine(store, result.uri)] == ["repeated key: 'id'"]


@pytest.mark.parametrize("end", [b"", b"{\n"], ids=["alone", "beside a bad line"])
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ignore_columns": ("x",)}, b'{"id": 200, "x": 1, "x": {"y": 1, "y": 2}}\n'),
        ({"text_column": "id"}, b'{"id": "200", "x": 1, "x": 2}\n'),
    ],
    ids=["ignored", "beside the text"],
)
def test_repeated_key_that_is_not_read_is_no_fault(
    tmp_path: Path, store: Store, settings: dict[str, object], line: bytes, end: bytes
) -> None:
    good = GOOD.replace(b"}", b', "x": 0}')
    if "text_column" in settings:
        good = good.replace(b'"id": ', b'"id": "').replace(b", ", b'", ')
    (tmp_path / "t.jsonl").write_bytes(good + line + end)
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT, **settings)
    assert (result.index.num_rows, result.index.bad_rows["count"]) == (101, len(end) // 2)


BETWEEN = {"blank lines": b"\n \n", "carriage returns": b"\r\n", "spaces": b" \t\n  "}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("mark", [b"", BOM], ids=["plain", "mark"])
@pytest.mark.parametrize("end", [b"", b"{\n"], ids=["alone", "beside a bad line"])
def test_space_between_lines_is_no_row(
    tmp_path: Path, store: Store, between: str, mark: bytes, end: bytes
) -> None:
    lines = GOOD.splitlines()
    (tmp_path / "t.jsonl").write_bytes(mark + BETWEEN[between].join([*lines, end]))
    result = store.shard(tmp_path / "t.jsonl", **UNSPLIT)
    assert sorted(row[0] for row in store.table(result)) == list(range(100))
    assert result.index.bad_rows["count"] == len(end) // 2


@pytest.mark.parametrize(
    ("content", "got", "remedy"),
    [
        (json.dumps([{"a": 1}, {"a": 2}]), '[{"a": 1}', "jq -c '.[]' in.json > out.jsonl"),
        (json.dumps({"a": 1}, indent=1), "{", "jq -c . in.json > out.jsonl"),
        ("\n1\n2\n", "1", "data_format"),
    ],
    ids=["array", "object of several lines", "numbers"],
)
def test_json_that_is_not_lines_is_refused_with_a_remedy(
    tmp_path: Path, store: Store, content: str, got: str, remedy: str
) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(DataError, match="none of the first lines is a JSON object") as caught:
        store.shard(tmp_path / "t.jsonl")
    assert (caught.value.got or "").startswith(got)
    assert remedy in (caught.value.next_step or "")


ODD_VALUES = (
    *(
        "01",
        "+1",
        ".5",
        "1.",
        "NaN",
        "nan",
        "-Infinity",
        "inf",
        "1e5",
        "1E400",
        "1e-400",
        "1_0",
        "0x1",
    ),
    *("9223372036854775808", "123456789012345678901", "true", "null", "", "'a'", "[]", "{}", "1,"),
    *(
        '"1"',
        '"a\tb"',
        '"\\u0000"',
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\\x"',
        '{"a":[{}]}',
        "\u20281",
    ),
)
ODD_ENDS = ("//c", ",", "\0", "\x1a", "\x0b", "\u00a0", "]", "}", ' {"v": 1}')


@pytest.mark.parametrize("good", ["7", "7.5", '"s"', "true"])
def test_line_has_the_same_outcome_beside_any_other_line(tmp_path: Path, good: str) -> None:
    lines = [f'{{"v": {value}}}' for value in ODD_VALUES]
    lines += [f'{{"v": {good}}}{end}' for end in ODD_ENDS] + ["{}", '\t{ "v" : 1 }', '{"w": 1}']
    start = f'{{"v": {good}}}\n' * 3
    for line in lines:
        content = f"{start}{line}\n".encode()
        rows, count = outcome(tmp_path / "t.jsonl", content)
        is_refused = len(rows) == 1
        expected = (rows, count + (not is_refused))
        assert outcome(tmp_path / "t.jsonl", content + b"{\n") == expected, line


def outcome(path: Path, content: bytes) -> tuple[list[str], int]:
    """Return the rows of a file and the number of bad rows; an error in place of the rows."""
    path.write_bytes(content)
    bad_rows = BadRows(1.0)
    file = SourceFile(name=path.name, uri=str(path), size=len(content))
    try:
        reading = Reading(
            data_format=DataFormat.JSONL,
            files=[file],
            objects=LocalObjects(path.parent),
            settings=ShardSettings(),
            folder=path.parent,
            bad_rows=bad_rows,
        )
        table = reading.table()
        return rows_of(table, bad_rows), bad_rows.count
    except DataError as error:
        return [str(error)], 0


def rows_of(table: Table, bad_rows: BadRows) -> list[str]:
    bad_rows.clear()
    try:
        return [repr(row) for _, each in table.batches() for row in each.batch.to_pylist()]
    except ReplanNeededError as error:
        if error.kind is not None:
            table.replan(error.column, error.kind)
        return rows_of(table, bad_rows)
