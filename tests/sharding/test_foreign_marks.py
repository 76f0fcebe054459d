"""Marks, comments, escapes and empty lines of CSV as MySQL, Spark, pandas, DuckDB and polars write them."""

from __future__ import annotations

import csv
import io
import random
import re
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from tests.sharding.test_foreign_text import rows_of
from trainyard.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store

ROWS = 400
OPTIONS: list[dict[str, Any]] = [{}, {"encoding": "utf-8"}]
MARKED = {
    "-999": (["-999", "\\N"], {}, lambda at: "-999.0" if at % 10 == 0 else f"{at / 4}"),
    "number": ([-999], {}, lambda at: "-999.00" if at % 10 == 0 else f"{at / 4}"),
    "decimal comma": (
        ["-999"],
        {"sep": ";", "decimal": ","},
        lambda at: "-999,0" if at % 10 == 0 else f"{at},25",
    ),
}


@pytest.mark.parametrize("kind", MARKED)
def test_mark_that_is_a_number_is_found_in_each_of_its_spellings(
    tmp_path: Path, store: Store, kind: str
) -> None:
    marks, options, text = MARKED[kind]
    sep = options.get("sep", ",")
    rows = "".join(f"{at}{sep}{text(at)}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n{sep}x\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options={"na_values": marks, **options})
    assert [x is None for _, x in rows_of(store, result)] == [at % 10 == 0 for at in range(ROWS)]


def test_text_is_no_mark_that_is_a_number(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at},{['-999.0', '-999', 'a'][at % 3]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,x\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options={"na_values": ["-999"]})
    assert [x for _, x in rows_of(store, result)][:3] == ["-999.0", None, "a"]


def test_comments_begin_outside_of_quotes(tmp_path: Path, store: Store) -> None:
    """pandas' C engine is the oracle; its Python engine cuts quoted texts."""
    draw = random.Random(0)  # noqa: S311
    texts = [
        "plain",
        '"issue #3"',
        '"two\nlines # in #1"',
        "it # a note",
        '"say ""#""" # note',
        "#",
    ]
    lines = [
        "# exported # by hand",
        "n,x,y",
        *(f"{at},{draw.choice(texts)},{at}" for at in range(ROWS)),
    ]
    lines.insert(40, '  # "an open quote')
    lines.insert(60, "# 1,2,3")
    text = "\n".join(lines) + "\n"
    (tmp_path / "t.csv").write_text(text)
    result = store.shard(tmp_path / "t.csv", csv_options={"comment": "#"}, max_bad_row_fraction=0.6)
    expected = pd.read_csv(
        io.StringIO(text.replace('  # "an open quote\n', "")), comment="#"
    ).dropna()
    assert rows_of(store, result) == [
        (row.n, row.x, row.y) for row in expected.itertuples() if row.x is not None
    ]


def test_comments_in_skipped_lines_keep_their_numbers(tmp_path: Path, store: Store) -> None:
    rows = "".join(f"{at},{at}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"# exported\nn,x\nm,kg\n{rows}")
    options = {"comment": "#", "skiprows": [2]}
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    assert rows_of(store, result) == [(at, at) for at in range(ROWS)]


@pytest.mark.parametrize("quoting", [0, 3])
def test_mark_of_mysql_is_found_beside_escapes(tmp_path: Path, store: Store, quoting: int) -> None:
    rows = "".join(
        f"{at}\t{'N' if at % 4 else chr(92) + 'N'}\t{at if at % 3 else chr(92) + 'N'}\ta{chr(92) * 2}b\n"
        for at in range(ROWS)
    )
    (tmp_path / "t.tsv").write_text(rows)
    options = {
        "header": None, "names": ["n", "class", "x", "path"], "quoting": quoting, "escapechar": "\\",
        "na_values": ["\\N"], "keep_default_na": False,
    }  # fmt: skip
    result = store.shard(tmp_path / "t.tsv", csv_options=options)
    assert rows_of(store, result) == [
        (at, "N" if at % 4 else None, at if at % 3 else None, "a\\b") for at in range(ROWS)
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "options"])
@pytest.mark.parametrize("odd", ["", "x\n"], ids=["good", "bad row"])
def test_empty_line_of_a_single_column_is_a_missing_value(
    tmp_path: Path, store: Store, odd: str, options: dict[str, Any]
) -> None:
    rows = "".join("\n" if at % 5 == 0 else f"{at}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"x\n{rows}{odd}")
    result = store.shard(tmp_path / "t.csv", csv_options=options, max_bad_row_fraction=0.01)
    values = [x for (x,) in store.table(result)]
    assert values.count(None) == ROWS // 5
    assert sorted(x for x in values if x is not None) == [at for at in range(ROWS) if at % 5]


def test_escaped_quotes_have_the_remedy_that_keeps_their_texts(
    tmp_path: Path, store: Store
) -> None:
    rows = "".join(f'{at},"say \\"hi\\", {at}"\n' for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,x\n{rows}")
    remedy = re.escape(r'{"escapechar": "\\", "doublequote": false}')
    with pytest.raises(DataError, match=remedy):
        store.shard(tmp_path / "t.csv")
    options = {"escapechar": "\\", "doublequote": False}
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    assert rows_of(store, result) == [(at, f'say "hi", {at}') for at in range(ROWS)]


def test_backslash_that_spark_keeps_is_not_dropped(tmp_path: Path, store: Store) -> None:
    """Spark escapes within quotes only; `csv` and pandas drop the backslash of every field."""
    paths = ["C:\\data\\new", "plain", '"say \\"hi\\""']
    rows = "".join(f"{at},{paths[at % 3]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,x\n{rows}")
    options = {"escapechar": "\\", "doublequote": False}

    with pytest.raises(
        DataError, match=r"escape character before 'd' in a field without quotes.*quoteAll"
    ):
        store.shard(tmp_path / "t.csv", csv_options=options)

    quoted = ['"C:\\\\data\\\\new"', '"plain"', paths[2]]
    rows = "".join(f"{at},{quoted[at % 3]}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,x\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options=options)
    texts = ["C:\\data\\new", "plain", 'say "hi"']
    assert rows_of(store, result) == [(at, texts[at % 3]) for at in range(ROWS)]


@pytest.mark.parametrize(
    ("field", "options"),
    [('"a""b\\d"', {}), (' "a\\d"', {"skipinitialspace": True})],
    ids=["two quotes", "space"],
)
def test_backslash_within_quotes_is_read_as_by_csv(
    tmp_path: Path, store: Store, field: str, options: dict[str, Any]
) -> None:
    rows = "".join(f"{at},{field}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,x\n{rows}")
    result = store.shard(tmp_path / "t.csv", csv_options={"escapechar": "\\", **options})
    (text,) = next(csv.reader([field], escapechar="\\", **options))
    assert rows_of(store, result) == [(at, text) for at in range(ROWS)]


@pytest.mark.parametrize("last", ["11529", "(2000 rows affected)"])
def test_last_line_that_is_cut_off_changes_no_type(tmp_path: Path, store: Store, last: str) -> None:
    rows = "".join(f"{2**60 + at},{at if at % 3 else ''},{at / 2}\n" for at in range(ROWS))
    (tmp_path / "t.csv").write_text(f"n,m,x\n{rows}{last}")
    result = store.shard(tmp_path / "t.csv", max_bad_row_fraction=0.01)
    assert rows_of(store, result) == [
        (2**60 + at, at if at % 3 else None, at / 2) for at in range(ROWS)
    ]
    assert result.index.bad_rows["count"] == 1
