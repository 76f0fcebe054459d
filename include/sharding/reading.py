"""One way to read every format: batches of text rows, or a table of typed batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from include.errors import Finding, SpecError
from include.sharding.objects import Objects
from include.sharding.quarantine import BadRows
from include.sharding.settings import DataFormat, ShardSettings
from include.sharding.source_files import SourceFile
from include.sharding.text_rows import TextBatch, text_file_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from include.sharding.csv_rows import TableBatch


class Table(Protocol):
    """Files read as one table."""

    schema: pa.Schema
    nullable: set[str]

    def widen(self, column: str) -> None:
        """Read a column of whole numbers as floats from now on."""

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows from the start, typed as `schema` says."""


def is_text(data_format: DataFormat, settings: ShardSettings) -> bool:
    """Return whether the source becomes tokens; otherwise it becomes typed columns."""
    return data_format is DataFormat.TEXT or settings.text_column is not None


def open_table(
    data_format: DataFormat,
    files: list[SourceFile],
    objects: Objects,
    settings: ShardSettings,
    bad_rows: BadRows,
) -> Table:
    """Return the files as a table; reads only as much as it takes to know the columns.

    Raises:
        DataError: a file cannot be read.
    """
    from include.sharding.csv_rows import CsvTable

    return CsvTable(files, objects, settings, bad_rows)


def text_batches(
    data_format: DataFormat,
    files: list[SourceFile],
    objects: Objects,
    settings: ShardSettings,
    bad_rows: BadRows,
) -> Iterator[tuple[SourceFile, TextBatch]]:
    """Yield rows of text: pieces of text files, or the text column of a table.

    Raises:
        DataError: a file cannot be read.
        SpecError: the table has no such text column.
    """
    if data_format is DataFormat.TEXT:
        if settings.text_column is not None:
            raise SpecError([_no_columns(settings.text_column)], subject="shard settings")
        for file in files:
            for batch in text_file_rows(file, objects, bad_rows, row_bytes=settings.text_row_bytes):
                yield file, batch
        return
    raise NotImplementedError


def _no_columns(text_column: str) -> Finding:
    return Finding(
        where="text_column",
        what="text files have no columns",
        got=text_column,
        next_step="leave text_column empty, or name the format with data_format",
    )
