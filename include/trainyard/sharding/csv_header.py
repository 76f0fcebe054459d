"""Headers of csv files: the delimiter, and the checks that the first line names every field once."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import suppress
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainyard.errors import DataError
from trainyard.sharding.csv_quotes import csv_records
from trainyard.sharding.csv_types import MISSING, is_of_type
from trainyard.sharding.source_files import suffix_of
from trainyard.sharding.table_schema import repeated_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.sharding.source_files import SourceFile

DELIMITER_BYTES = 65_536
"""Bytes below the first line from which the delimiter is derived."""
NUM_SAMPLED = 50
"""Rows at the start of a file that are compared with the header."""
_DELIMITERS = ",;\t|"
_EXCEL_DELIMITER = re.compile(r"sep=.", re.IGNORECASE)
_NO_HEADER = 'set csv_options: {"header": null, "names": ["a", "b"]}'
_FEW_NUMBERS = 3
_LEAST_SEQUENCE = 3


def delimiter_of(file: SourceFile, text: str, *, others: str = "", **dialect: Any) -> str:
    """Return the delimiter that splits the most rows into as many fields as the header; a tab for `.tsv`.

    Delimiters within quotes are not counted. For a header of one field, return a comma.

    Args:
        file: the file.
        text: its first lines.
        others: characters that numbers may contain, such as a decimal comma. They are considered as delimiters
            only if no other delimiter splits the header.
        dialect: arguments of `csv.reader`.

    Raises:
        DataError: two delimiters split the same number of rows.
    """  # noqa: DOC501 - the named function returns a DataError
    if suffix_of(file.name) == ".tsv":
        return "\t"
    fitting = {each: _num_fitting(text, delimiter=each, **dialect) for each in _DELIMITERS}
    candidates = [each for each in fitting if each not in others]
    if not any(any(fitting[each]) for each in candidates):
        # Numbers with thousands in US form are quoted: the comma may then be the delimiter, too.
        candidates = list(_DELIMITERS)
    best, second, *_ = sorted(candidates, key=fitting.__getitem__, reverse=True)
    if 0 < fitting[best][0] == fitting[second][0]:
        raise _two_delimiters(file, text, best, second)
    return best


def sampled_rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the fields of the rows below the header, without rows that have text after a closing quote."""
    records = csv_records(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = []
    with suppress(csv.Error):
        for record in islice(records, NUM_SAMPLED):
            rows.append(record.fields)  # noqa: PERF401 - rows before an error are kept
    return [row for row in rows[1:] if row]


def check_header(
    file: SourceFile, names: list[str], rows: list[list[str]], *, is_certain: bool = False
) -> None:
    """Check that a header has enough names for the fields of the rows, and does not look like a row of data.

    Args:
        file: the file.
        names: the column names.
        rows: the fields of the first rows.
        is_certain: whether the user has declared the header. If so, a header that looks like a row of data is
            accepted.

    Raises:
        DataError: every row has more fields than the header has names, or the header looks like a row of data.
    """
    if not is_certain:
        _check_is_header(file, names, rows)
    width = min(map(len, rows), default=0)
    if width > len(names):
        raise DataError(
            "the rows of a csv file have more fields than there are column names",
            job_name="sharding",
            where=file.name,
            got=f"{width} fields",
            allowed=f"{len(names)} fields: {', '.join(names)}",
            next_step="add the missing names to the header line, or name every field in csv_options: "
            '{"header": 0, "names": ["a", "b", "c"]}; if the file has no header, set {"header": null, "names": [...]}; '
            "if the lines end with a delimiter, remove it",
        )


def check_repeated(file: SourceFile, names: list[str], delimiter: str) -> None:
    """Check that no two columns have the same name.

    Raises:
        DataError: two columns have the same name.
    """
    twice = repeated_names(names)
    if not twice:
        return
    remedy = "rename one of them in the header line"
    if "" in twice:
        several = json.dumps(2 * re.escape(delimiter))
        remedy = (
            f'if the delimiter is {2 * delimiter!r}, set csv_options: {{"sep": {several}}} (several characters '
            "are a regular expression); otherwise name each column in the header line"
        )
    raise DataError(
        f"a csv file has two columns of the same name: {', '.join(map(repr, twice))}",
        job_name="sharding",
        where=file.name,
        got=", ".join(names),
        allowed="a different name for each column",
        next_step=f'{remedy}, or set csv_options: {{"header": 0, "names": ["a", "b"]}}; '
        f"if the file has no header, {_NO_HEADER}",
    )


def check_delimiter_line(file: SourceFile, first: str) -> None:
    """Check that the first line is not `sep=;`, which Excel writes above the header.

    Raises:
        DataError: the first line has this form.
    """
    if _EXCEL_DELIMITER.fullmatch(first):
        raise DataError(
            "a csv file begins with a line that names its delimiter, as Excel writes it",
            job_name="sharding",
            where=file.name,
            got=first,
            allowed="a header with the names of the columns",
            next_step=f'set csv_options: {{"sep": "{first[-1]}", "skiprows": 1}}, or delete the line',
        )


def empty_header(file: SourceFile, kind: type[DataError] = DataError) -> DataError:
    """Return the error for a csv file without a header; `kind` is `NoContentError` if no file has content."""
    return kind(
        "the first line of a csv file is empty",
        job_name="sharding",
        where=file.name,
        got="an empty line",
        allowed="a header with the names of the columns",
        next_step=f"add a header line, or {_NO_HEADER}",
    )


def other_columns(file: SourceFile, names: list[str], expected: list[str]) -> DataError:
    """Return the error for a file whose columns differ from those of the first file."""
    return DataError(
        "the columns of a csv file differ from those of the first file",
        job_name="sharding",
        where=file.name,
        got=", ".join(names),
        allowed=", ".join(expected),
        next_step="give all files the same columns, or select some files with a glob; "
        f"if the files have no header, {_NO_HEADER}",
    )


def _num_fitting(text: str, **dialect: Any) -> tuple[int, int]:
    """Return (number of later rows with as many fields as the first row, number of fields of the first row).

    (0, 0) if the first row has fewer than two fields, or the text cannot be parsed.
    """
    reader = csv.reader(io.StringIO(text, newline=""), **dialect)
    try:
        header, *rows = [len(row) for row in islice(reader, NUM_SAMPLED) if row] or [0]
    except (csv.Error, ValueError):
        return 0, 0
    return (rows.count(header), header) if header > 1 else (0, 0)


def _two_delimiters(file: SourceFile, text: str, *two: str) -> DataError:
    options = " or ".join(f'{{"sep": {json.dumps(each)}}}' for each in two)
    return DataError(
        "the delimiter of a csv file is unclear: two delimiters split the same number of rows",
        job_name="sharding",
        where=file.name,
        got=" and ".join(map(repr, two)) + f" in {text.splitlines()[0][:200]!r}",
        allowed="one delimiter",
        next_step=f"set the delimiter in csv_options: {options}"
        + ('; for numbers with commas also "decimal": ","' if "," in two else ""),
    )


def _check_is_header(file: SourceFile, names: list[str], rows: list[list[str]]) -> None:
    texts = [name.strip() for name in names]
    fields = [[field.strip() for field in row] for row in rows]
    is_single = len(texts) == 1
    # A header may be repeated within the file, but in a single column this is an equal value.
    fields = [row for row in fields if len(row) == len(texts) and (is_single or row != texts)]
    separator = ""
    if is_single and fields:
        pieces = [each[0].split() for each in (texts, *fields)]
        is_even = len({len(each) for each in pieces}) == 1 < len(pieces[0])
        if is_even and any(map(_is_number, pieces[0])):
            (texts, *fields), separator = pieces, r'"sep": "\\s+", '
    columns: list[Sequence[str]] = list(zip(*fields, strict=True)) or [()] * len(texts)
    if not _is_row(texts, columns):
        return
    raise DataError(
        "the first line of a csv file looks like a row of data and not like a header",
        job_name="sharding",
        where=file.name,
        got=", ".join(names),
        allowed="a header with the names of the columns",
        next_step=f'if the file has no header, set csv_options: {{{separator}"header": null, "names": ["a", "b"]}}; '
        'if these are names, set csv_options: {"header": 0}',
    )


def _is_row(names: list[str], columns: list[Sequence[str]]) -> bool:
    """Return whether the names in a header look like a row of data.

    Whole numbers that rise in equal steps, such as pixel numbers or years, can be names.

    Args:
        names: the names.
        columns: the values below each name.
    """
    numbers = [at for at, name in enumerate(names) if _is_number(name)]
    if not all(names[at].isdecimal() for at in numbers):
        return True
    whole = [int(names[at]) for at in numbers]
    steps = {after - before for before, after in pairwise(whole)}
    if len(steps) > 1 or min(steps, default=1) <= 0:
        return True
    if len(numbers) > _FEW_NUMBERS:
        return False
    occur = [name in column for name, column in zip(names, columns, strict=True)]
    if len(numbers) == len(names):
        is_other = len(names) == 1 and names != ["0"]
        return is_other or any(occur) or all(map(_is_inside, names, columns))
    if names[0] == "" and whole == list(range(len(whole))):
        numbers = []  # a series or an array that pandas wrote with its index
    return any(
        name not in MISSING and (occurs or _continues(name, column) or _has_look(name, column))
        for at, (name, column, occurs) in enumerate(zip(names, columns, occur, strict=True))
        if at in numbers or not name.isdecimal()
    )


def _is_number(text: str) -> bool:
    return bool(is_of_type(text, pa.float64()))


def _is_inside(name: str, column: Sequence[str]) -> bool:
    values = [int(each) for each in column if each.isdecimal()]
    return 0 < len(values) == len(column) and min(values) <= int(name) <= max(values)


def _continues(name: str, column: Sequence[str]) -> bool:
    """Return whether the name and the values below it are whole numbers in equal steps, as in numbered rows."""
    if len(column) < _LEAST_SEQUENCE or not all(each.isdecimal() for each in (name, *column)):
        return False
    return len({int(after) - int(before) for before, after in pairwise((name, *column))}) == 1


def _has_look(name: str, column: Sequence[str]) -> bool:
    """Return whether a column's name has the same form as all of its values, and looks like a date or a time.

    The form of a text has `a` for each word and `9` for each number: `2026-11-25` has the form `9-9-9`. The
    name looks like a date or a time if it has two numbers with only punctuation or spaces between them.
    """
    look = _look(name)
    return re.search("9[^a9]+9", look) is not None and {_look(each) for each in column} == {look}


def _look(text: str) -> str:
    return re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "a", text))
