"""Record batches from csv files: Arrow parses whole blocks; a block with a bad row is parsed row by row."""

from __future__ import annotations

import codecs
import csv
import io
import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from trainyard.errors import DataError, NoContentError
from trainyard.sharding.csv_header import (
    DELIMITER_BYTES,
    check_delimiter_line,
    check_header,
    check_repeated,
    delimiter_of,
    empty_header,
    other_columns,
    sampled_rows,
)
from trainyard.sharding.csv_quotes import (
    CsvRecord,
    QuoteCheck,
    csv_records,
    has_doubtful_quotes,
    open_quote,
    whole_lines,
    with_spaces,
)
from trainyard.sharding.csv_types import (
    FALSE,
    MISSING,
    TRUE,
    are_numbers,
    check_codes,
    check_exact,
    column_type,
    is_beyond_float,
    is_of_type,
    typed_rows,
)
from trainyard.sharding.line_blocks import MAX_LINE_BYTES, LineBlock, line_blocks
from trainyard.sharding.source_files import ReadProgress, SourceFile, unreadable
from trainyard.sharding.table_batch import ChangingSchema, TableBatch, may_be_inexact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.reading import Reading
    from trainyard.sharding.settings import ShardSettings

_SAMPLE_FILES = 4
_SAMPLE_ROWS = 20_000
_LONGEST_CODE = 64
_MISSING = frozenset(MISSING)
_Rows = list[tuple[int, list[str]]]
"""Rows as (number of the first line, fields)."""
_Records = list[tuple[int, CsvRecord]]
"""Rows as (number of the first line, record), including those with text after a closing quote."""


class CsvTable(ChangingSchema):
    """Csv files, each with a header line. The column types are inferred from the first rows of up to four files.

    `category_columns` are always read as strings. Rows with a wrong number of fields, a wrong type or a wrong encoding
    are bad rows.

    Raises:
        DataError: a file cannot be read or has other columns than the first.
    """

    def __init__(self, reading: Reading) -> None:
        files, settings = reading.files, reading.settings
        self._files, self._objects, self._bad_rows = files, reading.objects, reading.bad_rows
        self._settings = settings
        csv.field_size_limit(MAX_LINE_BYTES)
        self.names: list[str] = []
        filled = (file for file in files if self._read_header(file) is not None)
        first = list(islice(filled, _SAMPLE_FILES))
        if not first:
            raise empty_header(files[0], NoContentError)
        table = pa.concat_tables([self._sample(file) for file in first]).combine_chunks()
        strings = {name: table.column(name).combine_chunks() for name in self.names}
        schema = pa.schema(
            [(name, _type_of(strings[name], settings, name=name)) for name in self.names]
        )
        nullable = {name for name, values in strings.items() if values.null_count}
        super().__init__(schema, nullable)

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows with the types of `schema`.

        Raises:
            DataError: a file cannot be read or has other columns.
            ReplanNeededError: a column is of another type.
        """
        progress = ReadProgress(self._files)
        for file in self._files:
            found = self._read_header(file)
            if found is None:
                continue
            header, delimiter = found
            for block in line_blocks(file, self._objects, delimiter=delimiter.encode()):
                table = self._parsed(file, block, header, delimiter)
                batches = table.select(self.names).combine_chunks().to_batches()
                batch = (
                    batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self.schema)
                )
                done, first = progress.at(file, block.position), block.first_line
                first += first == 1  # the header
                yield file, TableBatch(batch=batch, done=done, first_line=first)

    def _parsed(
        self, file: SourceFile, block: LineBlock, header: list[str], delimiter: str
    ) -> pa.Table:
        skip = 1 if block.first_line == 1 else 0
        is_single = len(header) == 1
        is_plain = not (is_single and b"\r\r\n" in block.data)  # two line ends to Arrow
        if is_plain and not has_doubtful_quotes(block.data, delimiter.encode(), len(header)):
            with suppress(pa.ArrowInvalid):
                table = _read_block(block.data, header, self.schema, delimiter, skip=skip)
                self._check_numbers(table, block.data, header, delimiter, skip=skip)
                self._check_codes(block.data, header, delimiter, skip=skip)
                return table
        text = block.data.decode("utf-8-sig", errors="surrogateescape")
        records = _split_rows(text, delimiter, first_line=block.first_line, is_single=is_single)[
            skip:
        ]
        good = self._whole_rows(file, records, header, delimiter)
        return self._typed_rows(file, good, header, delimiter)

    def _check_numbers(
        self, table: pa.Table, data: bytes, header: list[str], delimiter: str, *, skip: int
    ) -> None:
        """Check the digits of numbers that float64 might not represent exactly, or that Arrow may have misread.

        Raises:
            DataError: see `check_exact`.
            ArrowInvalid: a field is not a number, or its number is beyond the range of float64.
        """
        doubtful = [field.name for field in table.schema if _is_doubtful(field, table, data)]
        for name, texts in _texts(data, header, doubtful, delimiter, skip=skip):
            if table.schema.field(name).type == pa.float64():
                check_exact(texts, name=name)
            if not are_numbers(texts) or pc.any(is_beyond_float(texts)).as_py():
                raise pa.ArrowInvalid(name)  # it is a bad row

    def _check_codes(self, data: bytes, header: list[str], delimiter: str, *, skip: int) -> None:
        """Check that numeric columns have no whole numbers with leading zeros.

        Raises:
            ReplanNeededError: see `check_codes`.
        """
        others = {pa.string(), pa.bool_(), pa.null()}
        numeric = [field.name for field in self.schema if field.type not in others]
        if numeric and _may_have_codes(data, delimiter):
            for name, texts in _texts(data, header, numeric, delimiter, skip=skip):
                check_codes(texts, name=name)

    def _whole_rows(
        self, file: SourceFile, records: _Records, header: list[str], delimiter: str
    ) -> _Rows:
        kinds = [self.schema.field(name).type for name in header]
        check = QuoteCheck(file.name, delimiter, lambda at, text: is_of_type(text, kinds[at]))
        good: _Rows = []
        for line, record in records:
            row = record.fields or []
            if quotes := check.fault(record, line, len(header)):
                for number, text in enumerate(record.lines, start=line):
                    content = text.rstrip("\r\n").encode(errors="surrogateescape")
                    self._bad_rows.add(file.name, number, quotes, content)
                continue
            if len(row) != len(header):
                reason = f"wrong number of fields: {len(row)} for {len(header)} columns"
            elif any(_has_wrong_bytes(value) for value in row):
                reason = "not UTF-8"
            else:
                good.append((line, row))
                continue
            content = delimiter.join(row).encode(errors="surrogateescape")
            self._bad_rows.add(file.name, line, reason, content)
        return good

    def _typed_rows(
        self, file: SourceFile, rows: _Rows, header: list[str], delimiter: str
    ) -> pa.Table:
        columns = _columns([row for _, row in rows], header)
        batch, faults = typed_rows(columns, self.schema, self._settings)
        for at, reason in faults.items():
            line, row = rows[at]
            self._bad_rows.add(file.name, line, reason, delimiter.join(row))
        return pa.Table.from_batches([batch])

    def _read_header(self, file: SourceFile) -> tuple[list[str], str] | None:
        """Return the names of the columns and the delimiter; None for a file without content.

        Spark may write files without content.

        Raises:
            DataError: the first line is not a header, or is not in UTF-8.
        """  # noqa: DOC501 - the named functions return a DataError
        block = next(line_blocks(file, self._objects), None)
        data = b"" if block is None else block.data
        if not data.removeprefix(codecs.BOM_UTF8).strip(b"\r\n"):
            return None
        line = data.split(b"\n", 1)[0]
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line:
            raise _other_encoding(file, line, "utf-16")
        try:
            first = line.decode("utf-8-sig").rstrip("\r")
        except UnicodeDecodeError as error:
            raise _other_encoding(file, line, "cp1252") from error
        check_delimiter_line(file, first)
        end = data.find(b"\n", len(line) + DELIMITER_BYTES) + 1
        text = data[: end or len(data)].decode("utf-8-sig", errors="replace")
        delimiter = delimiter_of(file, text)
        if open_quote(first.encode() + b"\n", delimiter.encode()) is not None:
            raise _line_end_in_header(file, first, delimiter)
        if "\r" in first:
            raise _carriage_returns(file)
        try:
            header = next(csv.reader([first], delimiter=delimiter), [])
        except csv.Error as error:
            raise unreadable(file, error) from error
        if not header:
            raise empty_header(file)
        check_repeated(file, header, delimiter)
        self.names = self.names or header
        if sorted(header) != sorted(self.names):
            raise other_columns(file, header, self.names)
        check_header(file, header, sampled_rows(text, delimiter))
        return header, delimiter

    def _sample(self, file: SourceFile) -> pa.Table:
        header, delimiter = self._read_header(file) or ([], "")
        blocks = line_blocks(file, self._objects, delimiter=delimiter.encode())
        text = next(blocks).data.decode("utf-8-sig", errors="replace")
        records = _split_rows(text, delimiter, first_line=1, is_single=len(header) == 1)
        rows = [record.fields or [] for _, record in records]
        fitting = [row for row in rows[1 : _SAMPLE_ROWS + 1] if len(row) == len(header)]
        return pa.table(_columns(fitting, header)).select(self.names)


def _columns(rows: list[list[str]], header: list[str]) -> dict[str, pa.Array]:
    """Return the strings of each column, with null for missing values."""
    return {
        name: pa.array([None if row[at] in _MISSING else row[at] for row in rows], pa.string())
        for at, name in enumerate(header)
    }


def _type_of(values: pa.Array, settings: ShardSettings, *, name: str) -> pa.DataType:
    """Return a column's type; an ignored column stays a string column."""
    is_ignored = name in settings.ignore_columns
    return pa.string() if is_ignored else column_type(values, settings, name=name)


def _other_encoding(file: SourceFile, line: bytes, encoding: str) -> DataError:
    return DataError(
        "the first line of a csv file is not UTF-8",
        job_name="sharding",
        where=file.name,
        got=str(line[:60]),
        allowed="UTF-8, or the encoding in csv_options",
        next_step=f'set its encoding in csv_options, for example {{"encoding": "{encoding}"}}, or convert the file',
    )


def _line_end_in_header(file: SourceFile, first: str, delimiter: str) -> DataError:
    return DataError(
        "a column's name has a line break, or the header has a quote that is never closed",
        job_name="sharding",
        where=file.name,
        got=first,
        allowed="a header of one line",
        next_step=f'rename the column, or set csv_options: {{"sep": {json.dumps(delimiter)}}}, which allows such names',
    )


def _carriage_returns(file: SourceFile) -> DataError:
    return DataError(
        "the lines of a csv file end with a carriage return and no line feed",
        job_name="sharding",
        where=file.name,
        allowed="lines that end with a line feed, with or without a carriage return before it",
        next_step="convert it, for example with: tr '\\r' '\\n'",
    )


def _split_rows(text: str, delimiter: str, *, first_line: int, is_single: bool) -> _Records:
    """Return the rows of csv text, each with the line on which it starts.

    An empty line is a row with one empty field if the table has a single column (`is_single`). Otherwise it is
    left out.
    """
    rows, line = [], first_line
    lines = whole_lines(io.StringIO(text, newline=""))
    for found in csv_records(lines, delimiter=delimiter):
        record = with_spaces(found, delimiter) if found.fields is None else found
        if record.fields == [] and is_single:
            record = record._replace(fields=[""])
        if record.fields != []:
            rows.append((line, record))
        line += record.num_lines
    return rows


def _is_doubtful(field: pa.Field, table: pa.Table, data: bytes) -> bool:
    """Return whether Arrow may have read a column's texts as numbers, or rounded its numbers."""
    if pa.types.is_integer(field.type):
        return b"0x" in data or b"0X" in data
    if field.type != pa.float64():
        return False
    column = table.column(field.name)
    return may_be_inexact(column) or bool(pc.any(pc.is_nan(column)).as_py())


def _texts(
    data: bytes, header: list[str], names: list[str], delimiter: str, *, skip: int
) -> Iterator[tuple[str, pa.Array]]:
    """Yield (name, strings) of each column in `names`. Spaces around the strings are removed."""
    if names:
        kinds = pa.schema([(name, pa.string()) for name in names])
        strings = _read_block(data, header, kinds, delimiter, skip=skip)
        for name in names:
            yield name, pc.utf8_trim_whitespace(strings.column(name).combine_chunks())


def _may_have_codes(data: bytes, delimiter: str) -> bool:
    """Return whether any field may be a whole number with leading zeros."""
    chars = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    is_digit = chars - np.uint8(ord("0")) < 10
    is_edge = (chars == ord(delimiter)) | (chars <= ord('"'))  # line ends, spaces, quotes
    starts = is_edge[:-2] & (chars[1:-1] == ord("0")) & is_digit[2:]
    at = np.flatnonzero(starts) + 2
    for _ in range(_LONGEST_CODE):
        if not len(at):
            return False
        at += 1
        goes_on = is_digit[at]
        if is_edge[at[~goes_on]].any():
            return True
        at = at[goes_on]
    return True


def _read_block(
    data: bytes, header: list[str], schema: pa.Schema, delimiter: str, *, skip: int
) -> pa.Table:
    return pacsv.read_csv(
        pa.BufferReader(data),
        read_options=pacsv.ReadOptions(
            column_names=header,
            skip_rows=skip,
            use_threads=True,
            block_size=max(1024, len(data) + 1),
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(header)
            > 1,  # in a single column an empty line is a missing value
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            null_values=list(MISSING),
            true_values=list(TRUE),
            false_values=list(FALSE),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _has_wrong_bytes(value: str) -> bool:
    return not value.isascii() and any("\udc80" <= each <= "\udcff" for each in value)
