"""Checks of the CSV files from which an AutoML run takes its rows."""

from __future__ import annotations

import gzip
import zipfile
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tabular import prepare_tabular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Prepare = Callable[[Mapping[str, str | bytes]], tuple[int, str]]

HEADER = "y,age,height\n"
ROWS = "".join(f"{at % 2},{20 + at},{150 + at}\n" for at in range(20))
EXPECTED = [(str(at % 2), str(20 + at), str(150 + at)) for at in range(20)]
GOOD = HEADER + ROWS


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Run the script on files; return its exit code and its message. Any number of rows is enough."""
    monkeypatch.setattr(prepare_tabular, "BASE", tmp_path)
    monkeypatch.setattr(prepare_tabular, "MIN_TRAIN_ROWS", 1)

    def run(files: Mapping[str, str | bytes]) -> tuple[int, str]:
        for name, content in files.items():
            path = tmp_path / "processing/input/source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        code = prepare_tabular.main(["--target", "y"])
        message = tmp_path / "output/message"
        return code, message.read_text() if message.exists() else ""

    return run


def written(base: Path) -> pd.DataFrame:
    """Return the rows of all splits as texts."""
    paths = sorted((base / "processing/output").rglob("rows.csv"))
    return pd.concat([pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths])


REFUSED = {
    "trailing comma in the rows": (
        {"a.csv": HEADER + ROWS.replace("\n", ",\n")},
        ("a.csv, line 2", "got: 4 fields", "allowed: 3", "row.names"),
    ),
    "short rows": (
        {"a.csv": GOOD + "1,20\n"},
        ("a.csv, line 22", "got: 2 fields", "allowed: 3"),
    ),
    "line of a row after a text of several lines": (
        {"a.csv": 'y,age,height\n0,"2\n0",150\n1,20\n'},
        (
            "a.csv, line 4",
            "got: 2 fields",
        ),
    ),
    "another name in the second file": (
        {"a.csv": GOOD, "b.csv": GOOD.replace("height", "Height")},
        ("b.csv", "'Height'", "'height'", "a.csv"),
    ),
    "second file without a header": (
        {"a.csv": GOOD, "b.csv": ROWS},
        ("b.csv", "'20'", "a.csv", "header"),
    ),
    "second file with a column less": (
        {"a.csv": GOOD, "b.csv": "y,age\n1,20\n"},
        ("b.csv", "'height'", "a.csv"),
    ),
    "name used twice": ({"a.csv": "y,age,age\n0,20,150\n"}, ("a.csv", "'age'", "rename")),
    "column without a name": (
        {"a.csv": ",y,age\n1,0,20\n"},
        ("a.csv", "column 1", "index=False"),
    ),
    "only empty files": ({"a.csv": "", "b.csv": b"\xef\xbb\xbf"}, ("'a.csv', 'b.csv'", "header")),
    "no rows": ({"a.csv": HEADER}, ("a.csv", "no row")),
    "open quote": ({"a.csv": GOOD + '1,"20,150\n'}, ("a.csv", "quote")),
    "not UTF-8": ({"a.csv": GOOD.encode() + b"1,\xe9,150\n"}, ("a.csv", "UTF-8")),
    "no gzip": ({"a.csv.gz": GOOD}, ("a.csv.gz", "gzip")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_whose_rows_would_arrive_changed_are_refused(prepare: Prepare, case: str) -> None:
    files, parts = REFUSED[case]
    code, message = prepare(files)
    assert code == 1
    assert [part for part in parts if part not in message] == []
    assert "next step: " in message


@pytest.mark.parametrize(
    "files",
    [
        {"a.csv": "\ufeff" + GOOD},
        {"a.csv": GOOD.replace("\n", "\r\n") + "\r\n\r\n"},
        {"a.csv": HEADER + ROWS, "_SUCCESS": "", "b.csv": HEADER},
        {
            "a.csv": GOOD,
            "b.csv": "\ufeffheight,y,age\n" + "".join(f"{h},{y},{a}\n" for y, a, h in EXPECTED),
        },
        {"a.csv.gz": gzip.compress(GOOD.encode())},
    ],
    ids=["byte order mark", "Windows", "empty files", "other order", "gzip"],
)
def test_every_value_arrives_in_its_column(
    prepare: Prepare, tmp_path: Path, files: Mapping[str, str | bytes]
) -> None:
    code, message = prepare(files)
    assert (code, message) == (0, "")
    rows = written(tmp_path)
    assert list(rows.columns) == ["y", "age", "height"]
    times = 2 if len(files) == 2 else 1
    assert sorted(rows.itertuples(index=False, name=None)) == sorted(EXPECTED * times)


@pytest.mark.parametrize(
    "text", ["NA", "null", "a\rb", "a\r\nb", "a\nb", '"', ",", " ", "", "\u2028"]
)
def test_every_text_of_a_feature_arrives_unchanged(
    prepare: Prepare, tmp_path: Path, text: str
) -> None:
    quoted = f'"{text.replace(chr(34), 2 * chr(34))}"'
    rows = "".join(f"{at % 2},{20 + at},{quoted}\n" for at in range(20))

    assert prepare({"a.csv": HEADER + rows}) == (0, "")

    assert list(written(tmp_path)["height"]) == [text] * 20


def test_missing_targets_are_empty(prepare: Prepare, tmp_path: Path) -> None:
    rows = "".join(f"{mark},1,2\n" for mark in ("NA", "NaN", "null", ""))

    assert prepare({"a.csv": GOOD + rows}) == (0, "")

    assert sorted(written(tmp_path)["y"]) == [""] * 4 + ["0"] * 10 + ["1"] * 10


def test_a_single_missing_target_is_split_too(prepare: Prepare, tmp_path: Path) -> None:
    assert prepare({"a.csv": GOOD + ",1,2\n"}) == (0, "")

    assert sorted(written(tmp_path)["y"]) == [""] + ["0"] * 10 + ["1"] * 10


def test_more_classes_than_test_rows_are_split_without_their_shares(
    prepare: Prepare, tmp_path: Path
) -> None:
    rows = "".join(f"{at % 10},{at},{at}\n" for at in range(20))

    assert prepare({"a.csv": HEADER + rows}) == (0, "")

    assert len(written(tmp_path)) == 20


def test_more_classes_than_kept_rows_are_split_without_their_shares() -> None:
    table = pd.DataFrame({"y": [at % 30 for at in range(600)]})

    kept, taken = prepare_tabular._halves(table, "y", 0.98, 0)

    assert (len(kept), len(taken)) == (12, 588)


def test_a_zip_archive_of_one_file_is_read(prepare: Prepare, tmp_path: Path) -> None:
    archive = tmp_path / "processing/input/source/a.csv.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as opened:
        opened.mkdir("exported")
        opened.writestr("exported/a.csv", GOOD)
    assert prepare({}) == (0, "")
    assert len(written(tmp_path)) == len(EXPECTED)


@pytest.mark.parametrize(("num_rows", "code"), [(555, 1), (556, 0)])
def test_automl_needs_500_training_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, code: int
) -> None:
    monkeypatch.setattr(prepare_tabular, "BASE", tmp_path)
    source = tmp_path / "processing/input/source/a.csv"
    source.parent.mkdir(parents=True)
    source.write_text(HEADER + "".join(f"{at % 2},{at},{at}\n" for at in range(num_rows)))

    assert prepare_tabular.main(["--target", "y"]) == code
    if code:
        message = (tmp_path / "output/message").read_text()
        assert "got: 499 of 555 rows" in message
        assert "lower test_fraction" in message


@pytest.mark.parametrize("dataset", sorted(prepare_tabular.BUNDLED))
def test_bundled_tables_have_enough_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    monkeypatch.setattr(prepare_tabular, "BASE", tmp_path)

    assert prepare_tabular.main(["--dataset", dataset]) == 0
