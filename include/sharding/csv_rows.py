"""Record batches out of csv files: whole blocks by Arrow, and row by row where a block has a bad row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from include.errors import DataError
from include.sharding.line_blocks import LineBlock, line_blocks
from include.sharding.objects import Objects
from include.sharding.quarantine import BadRows
from include.sharding.settings import ShardSettings
from include.sharding.source_files import Progress, SourceFile, suffix_of, unreadable
from include.sharding.table_batch import TableBatch
from include.sharding.table_schema import WiderTypeNeededError

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WHOLE = r"^[+-]?\d{1,18}$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity)$"
_SAMPLE_FILES = 4
_NUMERIC_SHARE = 0.9


class CsvTable:
    """Csv files with a header line each. Types are told from the first block of up to four files.

    A column is of numbers when nine in ten of its sampled values are: the others are then bad rows.

    Args:
        files: the files, read in this order.
        objects: opens remote files.
        settings: `category_columns` are read as strings whatever they hold.
        bad_rows: takes rows of a wrong number of fields, a wrong type or a wrong encoding.
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
        self._header, self._delimiter = self._read_header(files[0])
        samples = [self._sample(file) for file in files[:_SAMPLE_FILES]]
        table = pa.concat_tables(samples)
        self.schema = pa.schema(
            [(name, self._type_of(name, table.column(name))) for name in self._header]
        )
        self.nullable = {name for name in self._header if table.column(name).null_count}

    def widen(self, column: str) -> None:
        """Read a column of whole numbers as floats from now on."""
        self.nullable.add(column)
        at = self.schema.get_field_index(column)
        if pa.types.is_integer(self.schema.field(at).type):
            self.schema = self.schema.set(at, pa.field(column, pa.float64()))

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows, typed as `schema` says.

        Raises:
            DataError: a file cannot be read or has other columns.
            WiderTypeNeededError: a column of whole numbers holds a fraction.
        """
        progress = Progress(self._files)
        for file in self._files:
            header, delimiter = self._read_header(file)
            self._check_header(file, header)
            for block in self._blocks(file):
                batch = self._parsed(file, block, header, delimiter)
                yield file, TableBatch(batch=batch, done=progress.at(file, block.position))

    def _blocks(self, file: SourceFile) -> Iterator[LineBlock]:
        try:
            yield from line_blocks(file, self._objects, quoted=True)
        except (OSError, EOFError, ValueError) as error:
            raise unreadable(file, error) from error

    def _parsed(
        self, file: SourceFile, block: LineBlock, header: list[str], delimiter: str
    ) -> pa.RecordBatch:
        skip = 1 if block.first_line == 1 else 0
        try:
            table = _read_block(block.data, header, self.schema, delimiter, skip=skip)
        except pa.ArrowInvalid:
            table = self._row_by_row(file, block, header, delimiter, skip=skip)
        table = table.select(self._header)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self.schema)

    def _row_by_row(
        self, file: SourceFile, block: LineBlock, header: list[str], delimiter: str, *, skip: int
    ) -> pa.Table:
        good: list[list[str]] = []
        text = block.data.decode(errors="surrogateescape")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        line = block.first_line
        for number, row in enumerate(rows):
            if row and number >= skip:
                reason = self._fault(row, header)
                if reason is None:
                    good.append(row)
                else:
                    content = delimiter.join(row).encode(errors="surrogateescape")
                    self._bad_rows.add(file.name, line, reason, content)
            line = block.first_line + rows.line_num
        columns = [
            pa.array([row[position] for row in good], pa.string())
            for position in range(len(header))
        ]
        plain = pa.table(columns, names=header)
        return pa.table(
            [_typed(plain.column(field.name), field.type) for field in self.schema],
            schema=self.schema,
        )

    def _fault(self, row: list[str], header: list[str]) -> str | None:
        if len(row) != len(header):
            return f"wrong number of fields: {len(row)} for {len(header)} columns"
        for name, value in zip(header, row, strict=True):
            if not value.isascii() and any("\udc80" <= each <= "\udcff" for each in value):
                return f"not UTF-8: column {name!r}"
            if value in MISSING:
                continue
            kind = self.schema.field(name).type
            if pa.types.is_integer(kind) and not re.match(_WHOLE, value.strip()):
                if re.match(_NUMBER, value.strip()):
                    raise WiderTypeNeededError(name)
                return f"wrong type: column {name!r} is a whole number, got {value[:50]!r}"
            if pa.types.is_floating(kind) and not re.match(_NUMBER, value.strip()):
                return f"wrong type: column {name!r} is a number, got {value[:50]!r}"
            if pa.types.is_boolean(kind) and value not in {*TRUE, *FALSE}:
                return f"wrong type: column {name!r} is true or false, got {value[:50]!r}"
        return None

    def _read_header(self, file: SourceFile) -> tuple[list[str], str]:
        block = next(self._blocks(file), None)
        if block is None:
            raise unreadable(file, ValueError("no line"))
        first = block.data.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").rstrip("\r")
        delimiter = "\t" if suffix_of(file.name) == ".tsv" else _delimiter_of(first)
        return next(csv.reader([first], delimiter=delimiter)), delimiter

    def _check_header(self, file: SourceFile, header: list[str]) -> None:
        if sorted(header) != sorted(self._header) or len(set(header)) != len(header):
            raise DataError(
                "a csv file's header is not that of the first file"
                if len(set(header)) == len(header)
                else "a csv file names a column twice",
                job_name="sharding",
                where=file.name,
                got=", ".join(header),
                allowed=", ".join(self._header),
                next_step="bring the files to the same columns, or narrow the source with a glob",
            )

    def _sample(self, file: SourceFile) -> pa.Table:
        header, delimiter = self._read_header(file)
        self._check_header(file, header)
        block = next(self._blocks(file))
        lines = list(
            csv.reader(
                io.StringIO(block.data.decode("utf-8-sig", errors="replace"), newline=""),
                delimiter=delimiter,
            )
        )[1:20_001]
        rows = [row for row in lines if len(row) == len(header)]
        return pa.table(
            {
                name: pa.array(
                    [None if row[at] in MISSING else row[at] for row in rows], pa.string()
                )
                for at, name in enumerate(header)
            }
        ).select(self._header)

    def _type_of(self, name: str, column: pa.ChunkedArray) -> pa.DataType:
        known = column.drop_null()
        if name in self._settings.category_columns or not len(known):
            return pa.string()
        known = pc.utf8_trim_whitespace(known)
        if pc.all(pc.is_in(known, pa.array([*TRUE, *FALSE]))).as_py():
            return pa.bool_()
        is_number = pc.match_substring_regex(known, _NUMBER)
        if pc.mean(is_number.cast(pa.float64())).as_py() < _NUMERIC_SHARE:
            return pa.string()
        is_whole = pc.match_substring_regex(known.filter(is_number), _WHOLE)
        return pa.int64() if pc.all(is_whole).as_py() else pa.float64()


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
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=schema,
            null_values=list(MISSING),
            true_values=list(TRUE),
            false_values=list(FALSE),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    is_missing = pc.is_in(column, pa.array(MISSING))
    column = pc.if_else(is_missing, pa.scalar(None, pa.string()), column)
    if pa.types.is_boolean(kind):
        return pc.is_in(column, pa.array(TRUE)).cast(kind)
    return column if kind == pa.string() else pc.utf8_trim_whitespace(column).cast(kind)


def _delimiter_of(line: str) -> str:
    return max(",;\t|", key=line.count)
