"""Record batches out of Parquet files: row groups streamed page by page, never a whole one in memory."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from include.errors import DataError
from include.sharding.source_files import SourceFile, unreadable
from include.sharding.table_batch import TableBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from include.sharding.objects import Objects

BATCH_ROWS = 32_768
_BUFFER_BYTES = 512 * 1024


class ParquetTable:
    """Parquet files of one schema.

    Args:
        files: the files, read in this order; a remote one is copied to the folder while it is read.
        objects: opens remote files.
        folder: for those copies.
        columns: the columns to read; None reads all but those in `ignored`.
    """

    def __init__(
        self,
        files: list[SourceFile],
        objects: Objects,
        folder: Path,
        *,
        ignored: frozenset[str] = frozenset(),
        only: str | None = None,
    ) -> None:
        self._files, self._objects, self._folder = files, objects, folder
        self._categories: list[str] = []
        self.nullable: set[str] = set()
        self.num_rows = 0
        self.names: list[str] = []
        for at, file in enumerate(files):
            with self._opened(file) as opened:
                schema = opened.schema_arrow
                if at == 0:
                    self.names = schema.names
                    wanted = [only] if only in schema.names else schema.names
                    self.schema = pa.schema(
                        [
                            pa.field(name, _plain(schema.field(name).type))
                            for name in wanted
                            if name not in ignored
                        ]
                    )
                    if only is None:
                        self._categories = [
                            field.name for field in self.schema if _is_string(field.type)
                        ]
                self._check(file, schema)
                self.num_rows += self._rows_to_read(file, opened)
                self.nullable |= _with_missing(opened.metadata, self.schema.names)

    def widen(self, column: str) -> None:
        """Store a column of whole numbers as floats from now on."""
        self.nullable.add(column)

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows.

        Raises:
            DataError: a file cannot be read.
        """
        done = 0
        for file in self._files:
            with self._opened(file) as opened:
                left = self._rows_to_read(file, opened)
                for batch in self._read(file, opened):
                    kept = batch.slice(0, left)
                    left -= kept.num_rows
                    done += kept.num_rows
                    yield file, TableBatch(batch=kept, done=done / max(1, self.num_rows))
                    if left == 0:
                        break

    def _read(self, file: SourceFile, opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        try:
            yield from opened.iter_batches(
                batch_size=BATCH_ROWS, columns=self.schema.names, use_threads=False
            )
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, error) from error

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[pq.ParquetFile]:
        path = Path(file.uri)
        if file.is_remote:
            path = self._folder / "source.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._objects.open(file.uri) as stream, path.open("wb") as copy:
                shutil.copyfileobj(stream, copy, 1024**2)
        try:
            opened = pq.ParquetFile(
                path,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                read_dictionary=self._categories,
            )
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, error) from error
        with opened:
            yield opened

    def _rows_to_read(self, file: SourceFile, opened: pq.ParquetFile) -> int:
        num_rows = int(opened.metadata.num_rows)
        if file.max_bytes is None or file.max_bytes >= file.size:
            return num_rows
        return max(1, num_rows * file.max_bytes // file.size)

    def _check(self, file: SourceFile, schema: pa.Schema) -> None:
        found = [schema.field(name) if name in schema.names else None for name in self.schema.names]
        types = [None if field is None else _plain(field.type) for field in found]
        if types != self.schema.types:
            different = [
                f"{field.name}: {kind or 'missing'}"
                for field, kind in zip(self.schema, types, strict=True)
                if field.type != kind
            ]
            raise DataError(
                "a Parquet file's columns are not those of the first file",
                job_name="sharding",
                where=file.name,
                got=", ".join(different),
                allowed=", ".join(f"{field.name}: {field.type}" for field in self.schema),
                next_step="bring the files to one schema, or narrow the source with a glob",
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, whether or not they are read as a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _with_missing(metadata: pq.FileMetaData, names: list[str]) -> set[str]:
    """Return the columns whose statistics count nulls. Without statistics the reading itself finds them."""
    missing = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(row_group.num_columns):
            chunk = row_group.column(at)
            statistics = chunk.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                missing.add(chunk.path_in_schema)
    return missing & set(names)
