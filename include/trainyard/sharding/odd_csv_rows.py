"""Record batches from csv files that need `csv_options`: encodings, comments, decimal commas."""

from __future__ import annotations

import csv
import re
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import DataError, NoContentError
from trainyard.sharding.csv_format import ColumnSelection, CsvFormat, NamedRecords
from trainyard.sharding.csv_header import (
    NUM_SAMPLED,
    check_header,
    check_repeated,
    empty_header,
    other_columns,
)
from trainyard.sharding.csv_quotes import QuoteCheck
from trainyard.sharding.csv_types import MISSING, column_type, is_of_type, typed_rows
from trainyard.sharding.line_blocks import MAX_LINE_BYTES, READ_ERRORS, opened
from trainyard.sharding.source_files import ReadProgress, SourceFile, unreadable
from trainyard.sharding.table_batch import ChangingSchema, TableBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import TextIOWrapper

    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.reading import Reading

_CHUNK_ROWS = 20_000
_SHOWN_BYTES = 20


class _Chunk(NamedTuple):
    """Some rows of a file, each with one field per column name.

    Attributes:
        columns: the strings of each selected column, by the column's name.
        lines: the line number at which each row begins.
        texts: the text of each row.
    """

    columns: dict[str, list[str]]
    lines: list[int]
    texts: list[str]


class OddCsvTable(ChangingSchema):
    """Csv files that are read with the user's `csv_options`, which are named as in `pandas.read_csv`.

    This table is slower than `CsvTable` and as strict.

    Raises:
        DataError: a file cannot be read, or has other columns than the first.
    """

    def __init__(self, reading: Reading) -> None:
        files, settings = reading.files, reading.settings
        self._files, self._objects, self._bad_rows = files, reading.objects, reading.bad_rows
        self._settings = settings
        options = dict(settings.csv_options)
        self._decimal = options.get("decimal", ".")
        self._thousands = options.get("thousands")
        self._missing = set(MISSING) if options.get("keep_default_na", True) else {""}
        marks = options.get("na_values", ())
        self._missing_of = marks if isinstance(marks, dict) else {}
        self._missing |= set() if isinstance(marks, dict) else _texts_of(marks)
        every = self._missing.union(*map(_texts_of, self._missing_of.values()))
        self._number = _number_pattern(self._decimal, self._thousands)
        self._selection = ColumnSelection(options)
        others = f"{self._decimal}{self._thousands or ''}"
        self._format = CsvFormat(options, others=others, marks=every)
        self._columns: list[str] = []
        self._expected: tuple[list[str], list[str]] | None = None
        csv.field_size_limit(MAX_LINE_BYTES)
        self.schema = pa.schema([])
        first = self._first_rows()
        strings = {name: self._strings(values, name) for name, values in first.columns.items()}
        self.names = list(strings)
        schema = pa.schema(
            [
                (name, column_type(self._plain_numbers(values), settings, name=name))
                for name, values in strings.items()
                if name not in settings.ignore_columns
            ]
        )
        nullable = {name for name, values in strings.items() if values.null_count}
        super().__init__(schema, nullable)

    def _first_rows(self) -> _Chunk:
        """Return the first rows of the first file with rows. If no file has any, return a chunk with only the columns.

        Raises:
            DataError: no file has content.
        """  # noqa: DOC501 - the named function returns a DataError
        first = None
        for file in self._files:
            with self._chunks(file, None) as (chunks, _):
                for chunk in chunks:
                    if chunk.lines:
                        return chunk
                    first = chunk if first is None else first
        if first is None:
            raise empty_header(self._files[0], NoContentError)
        return first

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows with the types of `schema`.

        Raises:
            DataError: a file cannot be read or has other columns.
        """
        progress = ReadProgress(self._files)
        for file in self._files:
            with self._chunks(file, self._bad_rows) as (chunks, raw):
                for chunk in chunks:
                    if not chunk.lines:
                        continue
                    batch = self._typed(file, chunk)
                    done = progress.at(file, raw.tell())
                    yield file, TableBatch(batch=batch, done=done, first_line=chunk.lines[0])

    @contextmanager
    def _chunks(
        self, file: SourceFile, bad_rows: BadRows | None
    ) -> Iterator[tuple[Iterator[_Chunk], Any]]:
        """Open a file for the time of the context, and yield one pair (chunks, raw).

        `chunks` is an iterator over the file's rows, in chunks of the selected columns. `raw` is the stream of the
        stored bytes; its position gives the read progress.

        Raises:
            DataError: the file cannot be read.
        """  # noqa: DOC501 - the named function returns a DataError
        try:
            with opened(file, self._objects) as (stream, raw):
                text = self._format.decoded(stream)
                yield self._read(file, text, bad_rows), raw
        except UnicodeError as error:
            raise _other_encoding(file, error, self._format.encoding) from error
        except (*READ_ERRORS, csv.Error) as error:
            raise unreadable(file, error) from error

    def _read(
        self, file: SourceFile, text: TextIOWrapper, bad_rows: BadRows | None
    ) -> Iterator[_Chunk]:
        found = self._format.read(file, text)
        if found is None:
            return
        first = list(islice(found.records, NUM_SAMPLED))
        check_repeated(file, found.names, found.delimiter)
        self._columns = found.names
        selected = self._selection.of(file, found.names)
        self._check_columns(file, selected, found.header)
        rows = [record.fields for _, record in first if record.fields]
        check_header(file, found.names, rows, is_certain=self._format.is_header_certain)
        found = found._replace(records=chain(first, found.records))
        good = self._good_rows(file, found, bad_rows)
        is_first = True
        while (rows_read := list(islice(good, _CHUNK_ROWS))) or is_first:
            is_first = False
            yield _Chunk(
                {name: [fields[at] for _, fields, _ in rows_read] for name, at in selected.items()},
                [line for line, _, _ in rows_read],
                [text for _, _, text in rows_read],
            )

    def _check_columns(self, file: SourceFile, columns: dict[str, int], header: list[str]) -> None:
        """Check that the file has the columns of the first file.

        If the csv option `names` replaces the names in the headers, the header must also be the same as in the
        first file.

        Raises:
            DataError: the file has other columns.
        """  # noqa: DOC501 - the named function returns a DataError
        names = list(columns)
        self._expected = self._expected or (names, header)
        expected, first_header = self._expected
        if sorted(names) != sorted(expected):
            raise other_columns(file, names, expected)
        is_renamed = any(header[at : at + 1] != [name] for name, at in columns.items())
        if is_renamed and header != first_header:
            raise other_columns(file, header, first_header)

    def _good_rows(
        self, file: SourceFile, found: NamedRecords, bad_rows: BadRows | None
    ) -> Iterator[tuple[int, list[str], str]]:
        """Yield each row that has one field per column name: the number of its first line, its fields and its text.

        Other rows are bad rows.
        """
        width = len(found.names)
        check = QuoteCheck(
            file.name,
            found.delimiter,
            self._is_of_type,
            quote=found.quote,
            escapes=found.escapes,
            warns=bad_rows is not None,  # without, the types of the columns are unknown
        )
        for line, record in found.records:
            fields = record.fields or []
            if fault := check.fault(record, line, width):
                for number, text in enumerate(record.lines, start=line):
                    if bad_rows is not None:
                        bad_rows.add(file.name, number, fault, text.rstrip("\r\n"))
                continue
            if not fields and width == 1:
                fields = [""]  # an empty line of a single column is a missing value
            elif not fields and self._format.skips_empty_lines:
                continue
            text = "".join(record.lines).rstrip("\r\n")
            if len(fields) == width:
                yield line, fields, text
            elif bad_rows is not None:
                reason = f"wrong number of fields: {len(fields)} for {width} columns"
                bad_rows.add(file.name, line, reason, text)

    def _is_of_type(self, at: int, text: str) -> bool | None:
        name = self._columns[at] if at < len(self._columns) else None
        if name not in self.schema.names or text in self._missing:
            return None
        kind = self.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return re.search(self._number, text, re.ASCII) is not None
        return is_of_type(text, kind)

    def _strings(self, column: list[str], name: str, *, is_text: bool = False) -> pa.Array:
        missing = self._missing | _texts_of(self._missing_of.get(name, ()))
        if not is_text and (numbers := set(self._numbers(missing).values())):
            found = self._numbers(set(column))  # -999.0 is the mark -999, too
            missing |= {text for text, number in found.items() if number in numbers}
        return pa.array([None if value in missing else value for value in column], pa.string())

    def _numbers(self, texts: Iterable[str]) -> dict[str, float]:
        """Return the value of each text that is a number; other texts have no entry."""
        found = [each for each in texts if re.search(self._number, each, re.ASCII)]
        plain = self._plain_numbers(pa.array(found, pa.string()))
        return dict(zip(found, map(float, plain.to_pylist()), strict=True))

    def _typed(self, file: SourceFile, chunk: _Chunk) -> pa.RecordBatch:
        columns = {
            name: self._strings(chunk.columns[name], name, is_text=kind == pa.string())
            for name, kind in zip(self.schema.names, self.schema.types, strict=True)
        }
        batch, faults = typed_rows(
            columns,
            self.schema,
            self._settings,
            plain_numbers=self._plain_numbers,
        )
        for at, reason in faults.items():
            self._bad_rows.add(file.name, chunk.lines[at], reason, chunk.texts[at])
        return batch

    def _plain_numbers(self, values: pa.Array) -> pa.Array:
        """Return the values with each number in the form `1234.5`.

        The numbers in `values` have the separators that `csv_options` sets. Any other value is changed, if
        necessary, so that it does not parse as a number.
        """
        if not self._thousands and self._decimal == ".":
            return values
        plain = pc.replace_substring(values, self._thousands, "") if self._thousands else values
        plain = pc.replace_substring(plain, self._decimal, ".")
        others = pc.replace_substring(values, ".", self._decimal)
        return pc.if_else(pc.match_substring_regex(values, self._number), plain, others)


def _other_encoding(file: SourceFile, error: UnicodeError, encoding: str) -> DataError:
    got = str(error)
    if isinstance(error, UnicodeDecodeError):
        start = error.start  # within a block of the file
        got = f"{error.object[start : start + _SHOWN_BYTES]!r} ({error.reason})"
    return DataError(
        "a csv file has bytes that are not valid in its encoding",
        job_name="sharding",
        where=file.name,
        got=got,
        allowed=f"bytes that are valid in {encoding}",
        next_step='set another encoding in csv_options, for example {"encoding": "cp1252"}, or set '
        '{"encoding_errors": "replace"} to replace such bytes',
    )


def _texts_of(marks: Any) -> set[str]:
    """Return the values that mark a missing cell, as texts. `marks` is one value or a list of values."""
    several = marks if isinstance(marks, list | tuple) else [marks]
    return {str(mark) for mark in several}


def _number_pattern(decimal: str, thousands: str | None) -> str:
    """Return the pattern of numbers with these separators; dates and addresses with the same characters do not match.

    Groups have three digits (1.234.567). With commas they may also be Indian (12,34,567).
    """
    whole, mark = r"\d+", re.escape(thousands or "")
    if thousands:
        whole += rf"|[1-9]\d{{0,2}}({mark}\d{{3}})+"
    if thousands == ",":
        whole += r"|[1-9]\d?(,\d{2})*,\d{3}"
    point = re.escape(decimal)
    number = rf"(({whole})({point}\d*)?|{point}\d+)([eE][+-]?\d+)?"
    return rf"^\s*[+-]?({number}|(?i:inf|infinity))\s*$"
