"""Script that splits a table into training, validation and test rows, for a processing job.

Reads a table bundled with scikit-learn (--dataset), or the CSV files below
`<base>/processing/input/source`. Writes CSVs with a header to
`<base>/processing/output/{train,validation,test}/rows.csv`, and facts about them to
`<base>/processing/output/facts/facts.json`. Validation rows are written only with --validation-fraction.
`<base>` is SAGEMAKER_BASE_DIR, by default /opt/ml. The same table and --seed give the same rows.

Exit codes: `0`: the rows are written. `1`: the script failed; `<base>/output/message` has the reason.

All CSV files must have a header, and the same columns. Each row must have one field for each column. The
script checks this itself. pandas would fill short rows, take the first field of long rows as an index, and
join different columns.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import hashlib
import io
import json
import logging
import lzma
import math
import os
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from sklearn import datasets
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger("prepare")

BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
BUNDLED = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
TARGET = "target"
MIN_TRAIN_ROWS = 500
"""Least number of training rows of an AutoML job (API reference of CreateAutoMLJobV2)."""
MOST_CLASSES = 30
MISSING = ("", "NA", "NaN", "null")
"""Values of the target that count as missing. Those of other columns are kept as they are."""
LINE_END = "\r\n"
"""With a bare line feed, Python 3.11's csv writes a carriage return in a text without quotes, which ends the row."""
LONGEST_FIELD = 2**31 - 1
MOST_NAMED = 5
READ_ERRORS = (
    csv.Error,
    EOFError,
    OSError,
    ValueError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)


class PreparationError(Exception):
    """The table cannot be split; the message names the fault, its place and the next step."""

    def __init__(self, what: str, **details: str) -> None:
        lines = [f"  {name.replace('_', ' ')}: {text}" for name, text in details.items()]
        super().__init__("\n".join([what, *lines]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    options = read_options(argv)
    try:
        table, target = read_table(options)
        parts = split(table, target, options)
        write(parts, target, options)
    except (PreparationError, ValueError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400  # the reason is what the user needs
        (BASE / "output").mkdir(parents=True, exist_ok=True)
        (BASE / "output" / "message").write_text(str(error)[:1024], encoding="utf-8")
        return 1
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Split a table for AutoML.")
    parser.add_argument("--dataset", choices=sorted(BUNDLED), help="a table of scikit-learn")
    parser.add_argument("--target", default=TARGET, help="the column to predict")
    parser.add_argument("--test-fraction", type=float, default=0.1)
    parser.add_argument("--validation-fraction", type=float, default=0.0, help="0 = none")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def read_table(options: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """Return the table and the name of its target column.

    Raises:
        PreparationError: There is no table, or it has no column with the name in `--target`.
    """
    if options.dataset:
        bunch = BUNDLED[options.dataset](as_frame=True)
        table = bunch.frame.copy()
        if "target_names" in bunch:
            table[TARGET] = [str(bunch.target_names[number]) for number in bunch.target]
        return table, TARGET
    table = read_source(BASE / "processing/input/source", options.target)
    if options.target not in table:
        raise PreparationError(
            f"the table has no column {options.target!r}; it has {', '.join(map(repr, table.columns))}; set "
            "--target to one of them"
        )
    return table, options.target


def read_source(folder: Path, target: str) -> pd.DataFrame:
    """Return the rows of all CSV files below a folder.

    All values are texts, except that missing values of the column `target` are NaN. Empty files are left out,
    with a warning.

    Raises:
        PreparationError: there are no rows, a file cannot be read or has other columns than the first, or a
            row does not have one field for each column.
    """
    paths = sorted(each for each in folder.rglob("*") if each.is_file())
    if not paths:
        raise PreparationError(
            "--dataset is not set, and the input 'source' has no file; set --dataset, or add a file to the input"
        )
    headers = {path: header for path in paths if (header := _checked_header(path, folder))}
    if not headers:
        raise PreparationError(
            "every file of the input 'source' is empty",
            where=_named([str(path.relative_to(folder)) for path in paths]),
            allowed="CSV files with a header",
            next_step="add a file with a header and rows to the input",
        )
    first = next(iter(headers))
    for path, header in headers.items():
        _check_same_columns(
            header, path.relative_to(folder), headers[first], first.relative_to(folder)
        )
    tables = []
    for path in headers:
        with _opened(path) as stored:
            table = pd.read_csv(
                stored,
                dtype=str,
                index_col=False,
                keep_default_na=False,
                na_values={target: list(MISSING)},
            )
        tables.append(table)
    table = pd.concat([each[headers[first]] for each in tables], ignore_index=True)
    if table.empty:
        raise PreparationError(
            "the input 'source' has no row",
            where=_named([str(path.relative_to(folder)) for path in headers]),
            got="only headers",
            next_step="add rows below the header; add a header to a file without one",
        )
    return table


def _checked_header(path: Path, folder: Path) -> list[str]:
    """Check all rows of a file; return the names of its columns, or an empty list if the file is empty.

    Raises:
        PreparationError: the file cannot be read, a name is missing or repeated, or a row does not have one
            field for each name.
    """
    name = str(path.relative_to(folder))
    header: list[str] = []
    try:
        for line, row in _numbered_rows(path):
            if not header:
                header = row
                _check_names(header, name)
            elif len(row) != len(header):
                raise PreparationError(
                    "a row has another number of fields than the header",
                    where=f"{name}, line {line}",
                    got=f"{_fields(len(row))}: {','.join(row)[:60]}",
                    allowed=f"{_fields(len(header))}, as in the header: {_named(header)}",
                    next_step="write one field for each column, without a comma after the last one; quote texts that "
                    "contain commas; in R, write the file with row.names = FALSE",
                )
    except READ_ERRORS as error:
        raise PreparationError(
            "a file cannot be read as CSV",
            where=name,
            got=str(error),
            allowed="UTF-8, fields separated by commas, quotes in pairs; .gz, .bz2, .xz, .zip with one file",
            next_step="correct the file, or remove it from the input",
        ) from error
    if not header:
        log.warning("%s is empty and adds no row", name)
    return header


def _numbered_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a file, except blank lines, with the number of the row's first line.

    Raises:
        ValueError: the file is a zip archive that does not contain exactly one file.
    """
    csv.field_size_limit(LONGEST_FIELD)
    with _opened(path) as stored:
        lines = io.TextIOWrapper(stored, encoding="utf-8-sig", newline="")
        reader = csv.reader(lines, strict=True)
        line = 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line, row
            line = reader.line_num + 1


def _opened(path: Path) -> Any:
    """Open a file for reading bytes, decompressed by its suffix.

    Raises:
        ValueError: the file is a zip archive that does not contain exactly one file.
    """
    openers: dict[str, Any] = {
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".zip": _open_zip,
    }
    return openers.get(path.suffix, Path.open)(path, "rb")


def _open_zip(path: Path, _: str) -> Any:
    archive = zipfile.ZipFile(path)
    names = [each.filename for each in archive.infolist() if not each.is_dir()]
    if len(names) != 1:
        raise ValueError(f"the archive has {len(names)} files")
    return archive.open(names[0])


def _check_names(header: list[str], where: str) -> None:
    """Check that every column has a name, and that no name is repeated.

    Raises:
        PreparationError: a name is missing or repeated.
    """
    if "" in header:
        raise PreparationError(
            "a column has no name",
            where=where,
            got=f"column {header.index('') + 1} of {len(header)}",
            allowed="a name for every column",
            next_step="name it, or remove it: to_csv(index=False) in pandas, row.names = FALSE in R, no comma after "
            "the last name",
        )
    repeated = [name for at, name in enumerate(header) if name in header[:at]]
    if repeated:
        raise PreparationError(
            "several columns have the same name",
            where=where,
            got=_named(repeated),
            allowed="a different name for every column",
            next_step="rename or remove all but one of these columns",
        )


def _check_same_columns(header: list[str], name: Path, first: list[str], first_name: Path) -> None:
    """Check that a file has the same columns as the first file.

    Raises:
        PreparationError: the file lacks some of these columns, or has others.
    """
    added = [each for each in header if each not in set(first)]
    missing = [each for each in first if each not in set(header)]
    if added or missing:
        got = [f"not in {first_name}: {_named(added)}"] if added else []
        got += [f"only in {first_name}: {_named(missing)}"] if missing else []
        raise PreparationError(
            "a file has other columns than the first file",
            where=str(name),
            got="; ".join(got),
            allowed="the same names in the header of every file, in any order",
            next_step="rename the columns, add a header to a file without one, or remove the file from the input",
        )


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(map(repr, names[:MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")


def _fields(number: int) -> str:
    return f"{number} field{'s' if number != 1 else ''}"


def split(table: pd.DataFrame, target: str, options: argparse.Namespace) -> dict[str, pd.DataFrame]:
    """Return the rows of each split.

    The test rows are split off first, then the validation rows. At each of these steps, the rows are
    stratified if `_classes` allows it: each class then has about the same share of the rows in both parts.
    Otherwise, the rows are divided without regard to classes.

    Raises:
        PreparationError: there are too few training rows for AutoML.
    """
    _check_num_rows(table[target], num_all=len(table))
    rest, test = _halves(table, target, options.test_fraction, options.seed)
    parts = {"train": rest, "test": test}
    if options.validation_fraction > 0:
        share = options.validation_fraction / (1 - options.test_fraction)
        parts["train"], parts["validation"] = _halves(rest, target, share, options.seed)
    _check_num_rows(parts["train"][target], num_all=len(table))
    return parts


def _check_num_rows(targets: pd.Series[Any], *, num_all: int) -> None:
    """Check that there are enough training rows for AutoML; rows without a target do not count.

    Raises:
        PreparationError: there are too few rows.
    """
    num_rows = int(targets.notna().sum())
    if num_rows < MIN_TRAIN_ROWS:
        raise PreparationError(
            "the table has too few training rows for AutoML",
            got=f"{num_rows} of {num_all} rows",
            allowed=f"at least {MIN_TRAIN_ROWS} training rows with a target",
            next_step="add rows, or lower test_fraction or validation_fraction",
        )


def write(parts: dict[str, pd.DataFrame], target: str, options: argparse.Namespace) -> None:
    """Write the splits, and facts about them."""
    output = BASE / "processing" / "output"
    digest = hashlib.sha256()
    for name, rows in sorted(parts.items()):
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        text = rows.to_csv(index=False, lineterminator=LINE_END)
        digest.update(f"{name}\n{text}".encode())
        (folder / "rows.csv").write_text(text, encoding="utf-8", newline="")
        log.info("%s: %s rows", name, len(rows))
    facts: dict[str, Any] = {
        "dataset": options.dataset,
        "target": target,
        "num_rows": {name: len(rows) for name, rows in parts.items()},
        "num_columns": len(parts["train"].columns) - 1,
        "fingerprint": digest.hexdigest(),
        "seed": options.seed,
    }
    (output / "facts").mkdir(parents=True, exist_ok=True)
    (output / "facts" / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def _halves(
    table: pd.DataFrame, target: str, share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    classes = _classes(table[target], share)
    kept, taken = train_test_split(table, test_size=share, random_state=seed, stratify=classes)
    return kept.sort_index(), taken.sort_index()


def _classes(targets: pd.Series[Any], share: float) -> pd.Series[Any] | None:
    """Return the class of each row for a stratified split; None if the rows cannot be stratified.

    A split divides the rows into two parts. It is stratified if each class has the same share of the rows in
    both parts. This is not possible with more than `MOST_CLASSES` classes, with a class of one row, or with
    more classes than rows in the smaller part. Missing targets form a class of their own. If only one target
    is missing, its row is added to the largest class, because a class of one row cannot be split.

    Args:
        targets: the targets of all rows.
        share: share of the rows that is split off, 0 to 1.
    """
    counts = targets.value_counts()
    if len(counts) > MOST_CLASSES or not counts.min() > 1:
        return None
    is_single = targets.isna().sum() == 1
    classes = targets.fillna(counts.index[0] if is_single else MISSING[0])
    num_taken = math.ceil(share * len(classes))
    return classes if classes.nunique() <= min(num_taken, len(classes) - num_taken) else None


if __name__ == "__main__":
    sys.exit(main())
