"""Common interface to sources of all formats: batches of token or text rows, or a table of typed batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.sharding.line_blocks import line_blocks
from trainyard.sharding.settings import UNTABLED, DataFormat, ShardSettings
from trainyard.sharding.source_files import ReadProgress, SourceFile
from trainyard.sharding.text_rows import TextBatch, text_file_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.table_batch import Table
    from trainyard.sharding.token_rows import TokenBatch, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Files of a source, with their settings and the store to read them from.

    Attributes:
        folder: folder for local copies of remote files.
        bad_rows: collects unreadable rows.
    """

    data_format: DataFormat
    files: list[SourceFile]
    objects: Objects
    settings: ShardSettings
    folder: Path
    bad_rows: BadRows

    @property
    def is_text(self) -> bool:
        """True if the source becomes tokens, False if it becomes typed columns."""
        return self.data_format in UNTABLED or self.settings.text_column is not None

    def table(self) -> Table:
        """Return the files as a table. To find the columns, only the beginning or the metadata of files is read.

        Raises:
            DataError: a file cannot be read.
        """
        if self.data_format is DataFormat.PARQUET:
            from trainyard.sharding.parquet_rows import ParquetTable

            return ParquetTable(self)
        if self.data_format is DataFormat.ARROW:
            from trainyard.sharding.arrow_rows import ArrowTable

            return ArrowTable(self)
        if (blocks := self._json_blocks()) is not None:
            from trainyard.sharding.jsonl_rows import JsonlTable

            return JsonlTable(self, blocks)
        if self.settings.csv_options:
            from trainyard.sharding.odd_csv_rows import OddCsvTable

            return OddCsvTable(self)
        from trainyard.sharding.csv_rows import CsvTable

        return CsvTable(self)

    def token_rows(self, vocabulary: Vocabulary) -> Iterator[TextBatch | TokenBatch]:
        """Yield the rows that become tokens, from text files, token arrays or one column of a table.

        Raises:
            DataError: a file cannot be read.
            SpecError: the source does not have the column `text_column`.
        """
        if self.data_format not in UNTABLED:
            yield from self._column_rows(self.settings.text_column or "", vocabulary)
            return
        if self.settings.text_column is not None:
            raise SpecError(_no_columns(self.settings.text_column), subject="shard settings")
        if self.data_format is DataFormat.TOKENS:
            from trainyard.sharding.token_rows import token_array_rows

            yield from token_array_rows(self, vocabulary)
            return
        progress = ReadProgress(self.files)
        for file in self.files:
            yield from text_file_rows(file, self, progress)

    def _json_blocks(self) -> Callable[[SourceFile, Objects], Iterator[LineBlock]] | None:
        """Return the function that reads a file as JSON lines; None if the format has another reader."""
        match self.data_format:
            case DataFormat.JSONL:
                return line_blocks
            case DataFormat.WEBDATASET:
                from trainyard.sharding.webdataset_rows import sample_blocks

                return partial(sample_blocks, settings=self.settings)
            case DataFormat.MDS:
                from trainyard.sharding.mds_rows import shard_blocks

                return partial(shard_blocks, settings=self.settings)
            case DataFormat.TFRECORD:
                from trainyard.sharding.tfrecord_rows import example_blocks

                return partial(example_blocks, settings=self.settings)
            case DataFormat.RECORDIO:
                from trainyard.sharding.recordio_rows import record_io_blocks

                return partial(record_io_blocks, settings=self.settings)
            case _:
                return None

    def _column_rows(self, column: str, vocabulary: Vocabulary) -> Iterator[TextBatch | TokenBatch]:
        """Yield the rows of a column: lists of token ids, or texts."""
        from trainyard.sharding.column_rows import text_column_rows, token_column_rows
        from trainyard.sharding.columnar_schema import holds_token_ids

        table = self.table()
        if column in table.schema.names and holds_token_ids(table.schema.field(column).type):
            yield from token_column_rows(table, column, self.bad_rows, vocabulary=vocabulary)
        else:
            yield from text_column_rows(table, column, self.bad_rows)


def _no_columns(text_column: str) -> Finding:
    return Finding(
        where="text_column",
        what="is set, but text files and token arrays have no columns",
        got=text_column,
        next_step="leave text_column empty, or set data_format to a format with columns",
    )
