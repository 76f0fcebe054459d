"""Reader of Arrow files: IPC streams, such as those of Hugging Face's `save_to_disk`, and IPC files."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from trainyard.errors import DataError
from trainyard.sharding.columnar_schema import (
    check_names,
    decodable_rows,
    joined_schema,
    text_columns,
    undecodable_name,
    wanted_schema,
    with_types,
)
from trainyard.sharding.objects import download
from trainyard.sharding.source_files import ReadProgress, bytes_to_read, unreadable
from trainyard.sharding.table_batch import ChangingSchema, TableBatch
from trainyard.sharding.table_schema import ReplanNeededError, is_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.reading import Reading
    from trainyard.sharding.source_files import SourceFile

BATCH_BYTES = 8 * 1024**2
"""Largest size of a batch, unless a single row is larger."""
_FILE_MAGIC = b"ARROW1"
_FEATHER_1_MAGIC = b"FEA1"
_FILE_START_BYTES = 8
"""Bytes of the magic and its padding, before the stream in a file."""
_MAX_FOOTER_BYTES = 64 * 1024**2


class ArrowTable(ChangingSchema):
    """Arrow files of one schema.

    A remote file is copied to a local folder while it is read. Rows with strings that are not UTF-8 are reported as bad
    rows. If only a text column is read (`text_column`), the caller checks its strings.

    Raises:
        DataError: the first file cannot be read, or the names of its columns are not unique or not UTF-8.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading, self._only = reading, reading.settings.text_column
        self._ignored = frozenset(reading.settings.ignore_columns)
        first = reading.files[0]
        with self._opened(first) as (_, reader):
            self.names = list(reader.schema.names)
            self._known = None if self._only else {*self.names, *self._ignored}
            self._check_names(first, reader.schema)
            schema = wanted_schema(reader.schema, ignored=self._ignored, only=self._only)
        super().__init__(schema, set())

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows.

        Raises:
            DataError: a file cannot be read, its columns differ from those of the first file, or two of its columns
                have the same name.
            ReplanNeededError: a column needs a wider type than in `schema` to hold a file's values.
        """  # noqa: DOC501 - the named functions return a DataError
        progress = ReadProgress(self._reading.files)
        texts = [] if self._only else text_columns(self.schema)
        for file in self._reading.files:
            first = 1
            with self._opened(file) as (source, reader):
                self._join(file, reader.schema)
                try:
                    for part in _parts(reader, self.schema.names):
                        if first > 1 and source.tell() > bytes_to_read(file):
                            break
                        done = progress.at(file, source.tell())
                        good = decodable_rows(
                            file,
                            with_types(_decoded(part), self.schema),
                            first,
                            texts=texts,
                            bad_rows=self._reading.bad_rows,
                        )
                        yield file, TableBatch(batch=good, done=done, first_line=first)
                        first += part.num_rows
                except (pa.ArrowException, OSError) as error:
                    raise unreadable(file, error) from error

    def _check_names(self, file: SourceFile, schema: pa.Schema) -> None:
        check_names(file, [name for name in schema.names if name not in self._ignored])

    def _join(self, file: SourceFile, schema: pa.Schema) -> None:
        self._check_names(file, schema)
        joined = joined_schema(file, schema, wanted=self.schema, known=self._known)
        if self._only:
            self.schema = joined
            return
        for field, before in zip(joined, self.schema, strict=True):
            if field.type != before.type:
                raise ReplanNeededError(field.name, field.type)

    @contextmanager
    def _opened(
        self, file: SourceFile
    ) -> Iterator[tuple[pa.NativeFile, pa.RecordBatchReader | pa.RecordBatchFileReader]]:
        """Open a file, and yield its bytes and a reader of its batches.

        Raises:
            DataError: the file is not an Arrow file, or has data after its end.
        """  # noqa: DOC501 - the named function returns a DataError
        path = Path(file.uri)
        if file.is_remote:
            path = self._reading.folder / "source.arrow"
            download(self._reading.objects, file.uri, path, etag=file.etag)
        with pa.OSFile(str(path)) as source:
            try:
                magic = source.read(len(_FILE_MAGIC))
                if magic.startswith(_FEATHER_1_MAGIC):
                    raise _old_feather(file)
                is_file = magic == _FILE_MAGIC
                source.seek(0)
                reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source)
                _ = reader.schema.names
                _check_end(file, path, is_file=is_file)
            except UnicodeDecodeError as error:
                raise undecodable_name(file, error) from error
            except (pa.ArrowException, OSError) as error:
                raise unreadable(file, error) from error
            yield source, reader


def _check_end(file: SourceFile, path: Path, *, is_file: bool) -> None:
    """Check that no data follows the end of the stream or file, such as a second stream or file.

    Readers ignore a second stream. Of two joined files they return the first one's rows.

    Raises:
        DataError: data follows.
    """
    with pa.memory_map(
        str(path)
    ) as source:  # only the headers of the messages are read, not their bodies
        source.seek(_FILE_START_BYTES if is_file else 0)
        try:
            for _ in pa.ipc.MessageReader.open_stream(source):
                pass
        except (pa.ArrowException, OSError):  # reported when the rows are read
            return
        end = source.tell()
        rest = source.read(_MAX_FOOTER_BYTES)
        if _FILE_MAGIC * 2 in rest if is_file else rest:
            raise DataError(
                "an Arrow file has data after its end",
                job_name="sharding",
                where=file.name,
                got=f"{source.size()} bytes; the first Arrow stream ends at byte {end}",
                allowed="a single Arrow stream, or a single table in Arrow's file format",
                next_step="store joined streams or tables as separate files, or write all batches with one writer",
            )


def _old_feather(file: SourceFile) -> DataError:
    return DataError(
        "a Feather file of version 1 cannot be read",
        job_name="sharding",
        where=file.name,
        allowed="Feather version 2, and other Arrow files and streams",
        next_step="convert it: pyarrow.feather.write_feather(pyarrow.feather.read_table(path), path)",
    )


def _parts(
    reader: pa.RecordBatchReader | pa.RecordBatchFileReader, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the named columns of each batch, in parts of about `BATCH_BYTES`."""
    if isinstance(reader, pa.RecordBatchReader):
        batches: Iterator[pa.RecordBatch] = iter(reader)
    else:
        batches = (reader.get_batch(at) for at in range(reader.num_record_batches))
    for whole in batches:
        batch = whole.select(names)
        if not batch.num_rows:
            continue
        rows = max(1, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its dictionary columns decoded, except those of strings."""
    for at, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type) and not is_text(field.type.value_type):
            batch = batch.set_column(at, field.name, batch.column(at).dictionary_decode())
    return batch
