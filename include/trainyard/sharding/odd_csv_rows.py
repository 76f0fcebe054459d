"""Record batches from csv files that need `pandas.read_csv` options: encodings, comments, decimal commas."""

from __future__ import annotations

import csv
import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import DataError, NoContentError
from trainyard.sharding.csv_format import ColumnSelection, CsvFormat, LineStream
from trainyard.sharding.csv_quotes import CsvRecord, QuoteCheck, csv_records
from trainyard.sharding.csv_rows import check_is_header, empty_header
from trainyard.sharding.csv_types import MISSING, column_type, is_of_type, parse_column
from trainyard.sharding.line_blocks import MAX_LINE_BYTES, READ_ERRORS, never_closed, opened
from trainyard.sharding.source_files import ReadProgress, SourceFile, unreadable
from trainyard.sharding.table_batch import TableBatch, TextSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import TextIOWrapper

    from pandas.io.parsers import TextFileReader

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.settings import ShardSettings

_CHUNK_ROWS = 20_000
_EMPTY_LINE = "\ue000"
"""Mark in place of an empty line of a single column, which pandas would skip."""


class OddCsvTable(TextSchema):
    """Table of csv files, read by pandas with the user's options. It is slower than `CsvTable` and as strict.

    Line numbers are derived from rows: lines that the options skip are not counted.

    Raises:
        DataError: a file cannot be read.
    """

    def __init__(
        self,
        files: list[SourceFile],
        objects: Objects,
        settings: ShardSettings,
        bad_rows: BadRows,
    ) -> None:
        self._files, self._objects, self._bad_rows = files, objects, bad_rows
        self._settings = settings
        options = dict(settings.csv_options)
        self._decimal = options.pop("decimal", ".")
        self._thousands = options.pop("thousands", None)
        self._missing = set(MISSING) if options.pop("keep_default_na", True) else {""}
        marks = options.pop("na_values", ())
        self._missing_of = marks if isinstance(marks, dict) else {}
        self._missing |= set() if isinstance(marks, dict) else _texts_of(marks)
        every = self._missing.union(*map(_texts_of, self._missing_of.values()))
        self._escape: str = options.get("escapechar") or ""
        self._escaped_marks = [each for each in every if self._escape and self._escape in each]
        self._number = _number_pattern(self._decimal, self._thousands)
        self._format = CsvFormat(options, others=f"{self._decimal}{self._thousands or ''}")
        self._selection = ColumnSelection(options)
        self._options = options
        self._columns: list[str] = []
        csv.field_size_limit(MAX_LINE_BYTES)  # pandas drops rows with longer fields
        self.schema = pa.schema([])
        first = self._first_rows()
        if self._format.has_header and "header" not in options:
            check_is_header(files[0], [str(name) for name in first.columns])
        strings = {str(name): self._strings(first[name]) for name in first.columns}
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

    def _first_rows(self) -> pd.DataFrame:
        """Return the first rows of the first file with rows. If no file has any, return a frame with only the columns.

        Raises:
            DataError: no file has content.
        """  # noqa: DOC501 - the named function returns a DataError
        first = None
        for file in self._files:
            with self._chunks(file, None) as (chunks, _):
                for chunk in chunks:
                    if len(chunk):
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
                    self._check_columns(file, chunk)
                    if not len(chunk):
                        continue
                    batch = self._typed(file, chunk)
                    first = int(chunk.index[0]) + 2
                    done = progress.at(file, raw.tell())
                    yield file, TableBatch(batch=batch, done=done, first_line=first)

    @contextmanager
    def _chunks(
        self, file: SourceFile, bad_rows: BadRows | None
    ) -> Iterator[tuple[Iterator[pd.DataFrame], Any]]:
        """Open a file, and yield the selected columns of its rows, and the stored stream.

        Raises:
            DataError: the file cannot be read.
        """  # noqa: DOC501 - the named function returns a DataError
        try:
            with opened(file, self._objects) as (stream, raw):
                text = self._format.decoded(stream)
                yield self._read(file, text, bad_rows), raw
        except (*READ_ERRORS, TypeError) as error:
            raise unreadable(file, error) from error

    def _read(
        self, file: SourceFile, text: TextIOWrapper, bad_rows: BadRows | None
    ) -> Iterator[pd.DataFrame]:
        def bad_line(fields: list[str]) -> None:
            if bad_rows is not None:
                reason = f"wrong number of fields: {len(fields)}"
                bad_rows.add(file.name, 0, reason, ",".join(fields))

        lines, dialect = self._format.lines(file, text)
        if self._escaped_marks:
            lines = self._with_marks(lines, dialect["delimiter"])
        # A longer delimiter is a pattern, and quotes are plain characters beside it.
        if len(dialect["delimiter"]) == 1:
            lines = self._checked_lines(file, lines, dialect, bad_rows)
        options: dict[str, Any] = {**self._options, "sep": dialect["delimiter"]}
        try:
            chunks = pd.read_csv(
                cast("TextIO", LineStream(lines)),
                **options,
                engine="python",
                dtype=str,
                keep_default_na=False,
                chunksize=_CHUNK_ROWS,
                on_bad_lines=bad_line,
            )
        except pd.errors.EmptyDataError:
            return
        for chunk in chunks:
            _check_width(file, chunk)
            names = {} if self._options.get("names") else _empty_names(chunks, chunk)
            self._columns = [names.get(name, name) for name in map(str, chunk.columns)]
            yield self._selection.of(chunk).rename(columns=names)

    def _checked_lines(
        self,
        file: SourceFile,
        lines: Iterator[str],
        dialect: dict[str, Any],
        bad_rows: BadRows | None,
    ) -> Iterator[str]:
        """Yield the lines of a file without those of rows with stray quotes, which pandas would drop or join.

        Raises:
            ValueError: a quoted field is never closed, or there is text after a closing quote in the header.
        """
        line, width = 1, 0
        for text in islice(lines, self._format.num_skipped):
            yield text
            line += 1
        check = QuoteCheck(
            file.name,
            dialect["delimiter"],
            self._is_of_type,
            quote=dialect["quotechar"] or '"',
            warns=bad_rows is not None,  # without, the types of the columns are unknown
        )
        records = csv_records(lines, **dialect)
        while (record := _next_record(records, line)) is not None:
            fault = check.fault(record, line, width)
            if fault and not width and self._format.has_header:
                raise ValueError(f"line {line}, the header, has {fault}")
            if fault is None:
                is_missing = width == 1 and not record.fields  # an empty line of a single column
                yield from [f"{_EMPTY_LINE}\n"] if is_missing else record.lines
            elif bad_rows is not None:
                for number, text in enumerate(record.lines, start=line):
                    bad_rows.add(file.name, number, fault, text.rstrip("\r\n"))
            if record.fields:
                width = width or len(record.fields)
            line += record.num_lines

    def _with_marks(self, lines: Iterator[str], delimiter: str) -> Iterator[str]:
        r"""Yield lines with the escape character doubled in fields that are marks such as `\N`: pandas removes one."""
        end, marks = re.escape(delimiter), "|".join(map(re.escape, self._escaped_marks))
        field = re.compile(rf"(?:^|(?<={end}))(?:{marks})(?={end}|[\r\n]*$)")
        for line in lines:
            yield field.sub(lambda mark: mark[0].replace(self._escape, 2 * self._escape), line)

    def _is_of_type(self, at: int, text: str) -> bool | None:
        name = self._columns[at] if at < len(self._columns) else None
        if name not in self.schema.names or text in self._missing:
            return None
        kind = self.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return re.search(self._number, text, re.ASCII) is not None
        return is_of_type(text, kind)

    def _strings(self, column: pd.Series[str], *, is_text: bool = False) -> pa.Array:
        missing = {_EMPTY_LINE, *self._missing} | _texts_of(
            self._missing_of.get(str(column.name), ())
        )
        if not is_text and (numbers := set(self._numbers(missing).values())):
            found = self._numbers(column.unique())  # -999.0 is the mark -999, too
            missing |= {text for text, number in found.items() if number in numbers}
        return pa.array(
            [None if value in missing else value for value in column],
            pa.string(),
            from_pandas=True,
        )

    def _numbers(self, texts: Iterable[object]) -> dict[str, float]:
        """Return the numbers among texts, by text."""
        found = [
            each
            for each in texts
            if isinstance(each, str) and re.search(self._number, each, re.ASCII)
        ]
        plain = self._plain_numbers(pa.array(found, pa.string()))
        return dict(zip(found, map(float, plain.to_pylist()), strict=True))

    def _check_columns(self, file: SourceFile, chunk: pd.DataFrame) -> None:
        missing = [name for name in self.schema.names if name not in map(str, chunk.columns)]
        if missing:
            raise DataError(
                "a csv file lacks columns of the first file",
                job_name="sharding",
                where=file.name,
                got=", ".join(map(str, chunk.columns)),
                allowed=", ".join(self.schema.names),
                next_step="give all files the same columns, or select some files with a glob",
            )

    def _typed(self, file: SourceFile, chunk: pd.DataFrame) -> pa.RecordBatch:
        chunk.columns = chunk.columns.map(str)
        strings = {
            field.name: self._strings(chunk[field.name], is_text=field.type == pa.string())
            for field in self.schema
        }
        parsed = {
            field.name: parse_column(
                strings[field.name]
                if field.type == pa.string()
                else self._plain_numbers(strings[field.name]),
                field.type,
                self._settings,
                name=field.name,
                is_fractional=field.name in self.fractional,
            )
            for field in self.schema
        }
        faults = {
            row: f"wrong type: column {name!r} is {self.schema.field(name).type}, "
            f"got {strings[name][row].as_py()[:50]!r}"
            for name, (_, wrong) in parsed.items()
            for row, _ in wrong
        }
        short = [row for row, cut in enumerate(chunk.isna().any(axis="columns")) if cut]
        faults |= dict.fromkeys(short, f"wrong number of fields: fewer than {chunk.shape[1]}")
        first = int(chunk.index[0]) + 2
        for row, reason in sorted(faults.items()):
            content = ",".join(str(value) for value in chunk.iloc[row])
            self._bad_rows.add(file.name, first + row, reason, content)
        batch = pa.RecordBatch.from_arrays(
            [values for values, _ in parsed.values()], schema=self.schema
        )
        kept = pa.array([row not in faults for row in range(len(chunk))], pa.bool_())
        return batch.filter(kept) if faults else batch

    def _plain_numbers(self, values: pa.Array) -> pa.Array:
        """Return numbers with other separators as `1234.5`, and other values in a form that is not numeric."""
        if not self._thousands and self._decimal == ".":
            return values
        plain = pc.replace_substring(values, self._thousands, "") if self._thousands else values
        plain = pc.replace_substring(plain, self._decimal, ".")
        others = pc.replace_substring(values, ".", self._decimal)
        return pc.if_else(pc.match_substring_regex(values, self._number), plain, others)


def _next_record(records: Iterator[CsvRecord], line: int) -> CsvRecord | None:
    """Return the row that starts in a line; None at the end.

    Raises:
        ValueError: a quoted field is never closed, or a field is too long.
    """  # noqa: DOC501 - the named function returns a ValueError
    try:
        return next(records, None)
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise never_closed(line) from error
        raise ValueError(f"line {line}: {error}") from error


def _texts_of(marks: Any) -> set[str]:
    """Return the texts of one or several marks of missing values."""
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


def _empty_names(chunks: TextFileReader, chunk: pd.DataFrame) -> dict[str, str]:
    """Return a new name, "", for the column without a name, which pandas calls `Unnamed: N`.

    Several such columns keep the names of pandas.
    """
    engine = chunks._engine  # type: ignore[attr-defined]  # noqa: SLF001  (there is no public record of them)
    named: set[str] = getattr(engine, "unnamed_cols", set()).intersection(chunk.columns)
    return dict.fromkeys(named, "") if len(named) == 1 else {}


def _check_width(file: SourceFile, chunk: pd.DataFrame) -> None:
    """Check that pandas did not use the first fields as row labels, as it does if rows are longer than the header.

    Raises:
        DataError: the rows have more fields than there are column names.
    """
    if not isinstance(chunk.index, pd.RangeIndex):
        raise DataError(
            "the rows of a csv file have more fields than there are column names",
            job_name="sharding",
            where=file.name,
            got=f"{chunk.shape[1] + chunk.index.nlevels} fields",
            allowed=f"{chunk.shape[1]}: {', '.join(map(str, chunk.columns))}",
            next_step="name every column in the header or in csv_options, and remove delimiters at the ends of lines",
        )
