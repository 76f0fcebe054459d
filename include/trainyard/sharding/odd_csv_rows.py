"""Record batches from csv files that need `pandas.read_csv` options: encodings, comments, decimal commas."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import DataError
from trainyard.sharding.csv_types import MISSING, column_type, parse_column
from trainyard.sharding.line_blocks import READ_ERRORS, opened
from trainyard.sharding.source_files import ReadProgress, SourceFile, unreadable
from trainyard.sharding.table_batch import TableBatch, TextSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.settings import ShardSettings

_CHUNK_ROWS = 20_000


class OddCsvTable(TextSchema):
    """Csv files read by pandas with the user's options; slower than `CsvTable`, and as strict.

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
        self._number = _number_pattern(self._decimal, self._thousands)
        self._options = options
        with self._chunks(files[0], None) as (chunks, _):
            first = next(iter(chunks))
        _check_width(files[0], first)
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

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows with the types of `schema`.

        Raises:
            DataError: a file cannot be read or has other columns.
        """
        progress = ReadProgress(self._files)
        for file in self._files:
            with self._chunks(file, self._bad_rows) as (chunks, raw):
                for chunk in chunks:
                    _check_width(file, chunk)
                    batch = self._typed(file, chunk)
                    first = int(chunk.index[0]) + 2
                    done = progress.at(file, raw.tell())
                    yield file, TableBatch(batch=batch, done=done, first_line=first)

    @contextmanager
    def _chunks(self, file: SourceFile, bad_rows: BadRows | None) -> Iterator[tuple[Any, Any]]:
        def bad_line(fields: list[str]) -> None:
            if bad_rows is not None:
                reason = f"wrong number of fields: {len(fields)}"
                bad_rows.add(file.name, 0, reason, ",".join(fields))

        try:
            with opened(file, self._objects) as (stream, raw):
                chunks = pd.read_csv(
                    stream,
                    **{"sep": None, **self._options},
                    engine="python",
                    dtype=str,
                    keep_default_na=False,
                    chunksize=_CHUNK_ROWS,
                    on_bad_lines=bad_line,
                )
                yield chunks, raw
        except (*READ_ERRORS, TypeError) as error:
            raise unreadable(file, error) from error

    def _strings(self, column: pd.Series[str]) -> pa.Array:
        missing = self._missing | _texts_of(self._missing_of.get(str(column.name), ()))
        return pa.array(
            [None if value in missing else value for value in column],
            pa.string(),
            from_pandas=True,
        )

    def _typed(self, file: SourceFile, chunk: pd.DataFrame) -> pa.RecordBatch:
        missing = [name for name in self.schema.names if name not in map(str, chunk.columns)]
        if missing:
            raise DataError(
                "a csv file lacks columns of the first file",
                job_name="sharding",
                where=file.name,
                got=", ".join(map(str, chunk.columns)),
                allowed=", ".join(self.schema.names),
            )
        chunk.columns = chunk.columns.map(str)
        strings = {name: self._strings(chunk[name]) for name in self.schema.names}
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


def _texts_of(marks: Any) -> set[str]:
    """Return one mark of missing values, or several, as they are written; -999.0 is also written -999."""
    several = marks if isinstance(marks, list | tuple) else [marks]
    wholes = {str(int(mark)) for mark in several if isinstance(mark, float) and mark.is_integer()}
    return wholes | {str(mark) for mark in several}


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
    return rf"^\s*[+-]?({number}|[iI]nf|INF|infinity)\s*$"


def _check_width(file: SourceFile, chunk: pd.DataFrame) -> None:
    """Check that pandas did not use the first fields as row labels, as it does if rows are longer than the header.

    Raises:
        DataError: pandas did.
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
