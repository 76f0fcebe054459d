"""One way to read every format: batches of text rows, or a table of typed batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trainyard.errors import Finding, SpecError
from trainyard.sharding.settings import DataFormat, ShardSettings
from trainyard.sharding.source_files import ReadProgress, SourceFile
from trainyard.sharding.text_rows import TextBatch, text_file_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.table_batch import TableBatch


class Table(Protocol):
    """Files read as one table."""

    names: list[str]

    @property
    def schema(self) -> pa.Schema:
        """The type of each column that is read."""

    @property
    def nullable(self) -> set[str]:
        """Columns known to lack values."""

    def replan(self, column: str, kind: pa.DataType | None) -> None:
        """Read a column as another type from now on; None keeps the type and expects missing values."""

    def expect_fractions(self) -> None:
        """Read whole numbers of text as floats where those are exact: other parts may hold fractions."""

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows from the start, typed as `schema` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A source that is ready to be read.

    Attributes:
        folder: for local copies of remote files.
        bad_rows: takes what cannot be read.
    """

    data_format: DataFormat
    files: list[SourceFile]
    objects: Objects
    settings: ShardSettings
    folder: Path
    bad_rows: BadRows

    @property
    def is_text(self) -> bool:
        """Return whether the source becomes tokens; otherwise it becomes typed columns."""
        return self.data_format is DataFormat.TEXT or self.settings.text_column is not None

    def table(self) -> Table:
        """Return the files as a table; reads only as much as it takes to know the columns.

        Raises:
            DataError: a file cannot be read.
        """
        if self.data_format is DataFormat.PARQUET:
            from trainyard.sharding.parquet_rows import ParquetTable

            return ParquetTable(
                self.files,
                self.objects,
                self.folder,
                self.bad_rows,
                ignored=frozenset(self.settings.ignore_columns),
                only=self.settings.text_column,
            )
        if self.data_format is DataFormat.JSONL:
            from trainyard.sharding.jsonl_rows import JsonlTable

            return JsonlTable(self.files, self.objects, self.settings, self.bad_rows)
        if self.settings.csv_options:
            from trainyard.sharding.odd_csv_rows import OddCsvTable

            return OddCsvTable(self.files, self.objects, self.settings, self.bad_rows)
        from trainyard.sharding.csv_rows import CsvTable

        return CsvTable(self.files, self.objects, self.settings, self.bad_rows)

    def text_batches(self) -> Iterator[TextBatch]:
        """Yield rows of text: pieces of text files, or the text column of a table.

        Raises:
            DataError: a file cannot be read.
            SpecError: the source has no such text column.
        """
        if self.data_format is not DataFormat.TEXT:
            from trainyard.sharding.text_columns import text_column_rows

            yield from text_column_rows(
                self.table(), self.settings.text_column or "", self.bad_rows
            )
            return
        if self.settings.text_column is not None:
            raise SpecError([_no_columns(self.settings.text_column)], subject="shard settings")
        progress = ReadProgress(self.files)
        for file in self.files:
            yield from text_file_rows(
                file,
                self.objects,
                self.bad_rows,
                row_bytes=self.settings.text_row_bytes,
                progress=progress,
            )


def _no_columns(text_column: str) -> Finding:
    return Finding(
        where="text_column",
        what="text files have no columns",
        got=text_column,
        next_step="leave text_column empty, or name the format with data_format",
    )
