"""Reader of Parquet files: it streams pages, and yields record batches of a limited number of rows and bytes."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainyard.sharding.columnar_schema import (
    check_names,
    decodable_rows,
    is_string,
    joined_schema,
    text_columns,
    undecodable_name,
    wanted_schema,
    with_types,
)
from trainyard.sharding.objects import download
from trainyard.sharding.source_files import unreadable
from trainyard.sharding.table_batch import ChangingSchema, TableBatch
from trainyard.sharding.table_schema import inexact_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from trainyard.sharding.reading import Reading
    from trainyard.sharding.source_files import SourceFile

BATCH_ROWS = 65_536
BATCH_BYTES = 8 * 1024**2
"""Largest batch in stored bytes before compression. A single page of the file may be larger."""
_LONG_STRING_BYTES = 4096
"""A string column with this many stored bytes per row, or more, is not read as a dictionary: values rarely repeat."""
_PACKED_BATCH_ROWS = 1024
"""Most rows of a batch with strings that the file stores packed and that are not read as a dictionary."""
_DELTAS = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
"""Encodings of strings that Arrow (25.0) does not read as a dictionary: "Not yet implemented: DictAccumulator"."""
_PACKED = frozenset({"DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "PLAIN_DICTIONARY"})
"""Encodings in which strings may be stored in a fraction of their size: they share prefixes, or repeat."""
_BUFFER_BYTES = 512 * 1024
_MAX_NS = 2**63 - 1
_SPARK = b"org.apache.spark.version"
_VALUE_BYTES = {"INT32": 4, "INT64": 8}


class ParquetTable(ChangingSchema):
    """Parquet files of one schema.

    A remote file is first copied to a temporary folder. Rows with strings that are not UTF-8 are
    bad rows. The strings of a text column are checked by the caller, not here.

    Raises:
        DataError: a file cannot be read, names a column twice, or has other columns than the first.
    """

    def __init__(self, reading: Reading) -> None:
        super().__init__(pa.schema([]), set())
        self._reading, only = reading, reading.settings.text_column
        ignored = frozenset(reading.settings.ignore_columns)
        self._strings: list[str] = []
        self.num_rows = 0
        self.names: list[str] = []
        for at, file in enumerate(reading.files):
            with self._opened(file) as opened:
                schema = opened.schema_arrow
                check_names(file, [name for name in schema.names if name not in ignored])
                if at == 0:
                    self.names = schema.names
                    self.schema = wanted_schema(schema, ignored=ignored, only=only)
                self.names += sorted({*schema.names} & ignored - {*self.names})
                known = None if only else {*self.names, *ignored}
                self.schema = joined_schema(file, schema, wanted=self.schema, known=known)
                self.num_rows += self._rows_to_read(file, opened)
                self.nullable |= _with_missing(opened.metadata, self.schema.names)
        self._checked = [] if only else text_columns(self.schema)
        self._strings = [field.name for field in self.schema if is_string(field.type)]

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows.

        Raises:
            DataError: a file cannot be read.
        """
        done = 0
        for file in self._reading.files:
            with self._opened(file, is_planned=True) as opened:
                left = self._rows_to_read(file, opened)
                first = 1
                for batch in self._read(file, opened):
                    kept = batch.slice(0, left)
                    left -= kept.num_rows
                    done += kept.num_rows
                    share = done / max(1, self.num_rows)
                    good = decodable_rows(
                        file,
                        with_types(kept, self.schema),
                        first,
                        texts=self._checked,
                        bad_rows=self._reading.bad_rows,
                    )
                    yield file, TableBatch(batch=good, done=share, first_line=first)
                    first += kept.num_rows
                    if left == 0:
                        break

    def _read(self, file: SourceFile, opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        try:
            plain = {*self._strings}.difference(_short_strings(opened.metadata, self._strings))
            for batch_rows, groups in _groups_by_batch_rows(
                opened.metadata, self.schema.names, plain_strings=plain
            ):
                yield from opened.iter_batches(
                    batch_size=batch_rows,
                    row_groups=groups,
                    columns=self.schema.names,
                    use_threads=False,
                )
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, error) from error

    @contextmanager
    def _opened(self, file: SourceFile, *, is_planned: bool = False) -> Iterator[pq.ParquetFile]:
        path = Path(file.uri)
        if file.is_remote:
            path = self._reading.folder / "source.parquet"
            download(self._reading.objects, file.uri, path, etag=file.etag)
        try:
            metadata = pq.read_metadata(path)
            opened = pq.ParquetFile(
                path,
                metadata=metadata,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                read_dictionary=_short_strings(metadata, self._strings),
                # INT96 is often beyond the range of nanoseconds (1677 to 2262). There Arrow returns other times.
                coerce_int96_timestamp_unit=self._unit(path, metadata) if is_planned else "us",
            )
        except UnicodeDecodeError as error:
            raise undecodable_name(file, error) from error
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, error) from error
        with opened:
            yield opened

    def _unit(self, path: Path, metadata: pq.FileMetaData) -> str:
        """Return the unit for the times that the file stores as INT96: `us`, or `ns` if a time needs it.

        Raises:
            DataError: a column needs nanoseconds, and also has times beyond their range.
        """  # noqa: DOC501 - the named function returns a DataError
        columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
        names = [each.path for each in columns if each.physical_type == "INT96"]
        names = [name for name in names if name in self.schema.names]
        if not names or _SPARK in (metadata.metadata or {}):  # Spark's are whole microseconds
            return "us"
        opened = [
            pq.ParquetFile(path, metadata=metadata, coerce_int96_timestamp_unit=unit)
            for unit in ("us", "ns")
        ]
        batches = (each.iter_batches(BATCH_ROWS, columns=names) for each in opened)
        needs_ns: dict[str, int] = {}
        lacks_ns: set[str] = set()
        for coarse, fine in zip(*batches, strict=True):
            for name in names:
                micros, nanos = (_counts(batch.column(name)) for batch in (coarse, fine))
                rest = nanos - micros * 1000  # both wrap at 64 bits, so the difference does not
                if rest.any():
                    at = int(np.flatnonzero(rest)[0])
                    needs_ns.setdefault(name, int(micros[at]) * 1000 + int(rest[at]))
                if len(micros) and max(micros.max(), -micros.min()) > _MAX_NS // 1000:
                    lacks_ns.add(name)
        for each in opened:
            each.close()
        for name in needs_ns.keys() & lacks_ns:
            raise inexact_time(name, needs_ns[name])
        return "ns" if needs_ns else "us"

    def _rows_to_read(self, file: SourceFile, opened: pq.ParquetFile) -> int:
        num_rows = int(opened.metadata.num_rows)
        if file.max_bytes is None or file.max_bytes >= file.size:
            return num_rows
        return max(1, num_rows * file.max_bytes // file.size)


def _counts(times: pa.Array) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = times.drop_null().view(pa.int64()).to_numpy()
    return counts


def _groups_by_batch_rows(
    metadata: pq.FileMetaData, names: list[str], *, plain_strings: set[str]
) -> Iterator[tuple[int, list[int]]]:
    """Yield batch sizes in rows, each with the consecutive row groups to read in batches of this size.

    A batch size is a power of two.
    """
    wanted = frozenset(names)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    sizes = [_batch_rows(group, wanted, plain_strings) for group in groups]
    for batch_rows, numbers in itertools.groupby(range(len(sizes)), key=sizes.__getitem__):
        yield batch_rows, list(numbers)


def _batch_rows(group: pq.RowGroupMetaData, names: frozenset[str], plain_strings: set[str]) -> int:
    fitting = BATCH_BYTES * int(group.num_rows) // max(1, _stored_bytes(group, names))
    chunks = map(group.column, range(group.num_columns if plain_strings else 0))
    is_packed = any(
        chunk.path_in_schema in plain_strings and not _PACKED.isdisjoint(chunk.encodings)
        for chunk in chunks
    )
    most = _PACKED_BATCH_ROWS if is_packed else BATCH_ROWS
    return min(most, 1 << max(0, fitting.bit_length() - 1))


def _short_strings(metadata: pq.FileMetaData, names: list[str]) -> list[str]:
    """Return the columns among `names` to read as dictionaries: those whose strings are short."""
    sizes: Counter[str] = Counter()
    deltas: set[str] = set()
    for at in range(metadata.num_row_groups if names else 0):
        group = metadata.row_group(at)
        for chunk in map(group.column, range(group.num_columns)):
            sizes[chunk.path_in_schema] += chunk.total_uncompressed_size
            if not _DELTAS.isdisjoint(chunk.encodings):
                deltas.add(chunk.path_in_schema)
    most = _LONG_STRING_BYTES * max(1, metadata.num_rows)
    return [name for name in names if sizes[name] < most and name not in deltas]


def _stored_bytes(group: pq.RowGroupMetaData, names: frozenset[str]) -> int:
    """Return the size of the named columns in bytes, encoded but not compressed.

    Ids in lists are counted with their decoded size if that is larger, because Parquet's dictionary encoding
    stores small ids in a fraction of their decoded size.
    """
    chunks = [group.column(at) for at in range(group.num_columns)]
    return sum(
        chunk.total_uncompressed_size
        if chunk.path_in_schema in names
        else max(chunk.total_uncompressed_size, _decoded_bytes(chunk))
        for chunk in chunks
        if _is_in(chunk.path_in_schema, names)
    )


def _is_in(path: str, names: frozenset[str]) -> bool:
    """Return whether a path, such as `input_ids.list.element`, is a named column or part of one."""
    return path in names or any(mark == "." and path[:at] in names for at, mark in enumerate(path))


def _decoded_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.num_values) * _VALUE_BYTES.get(chunk.physical_type, 0)


def _with_missing(metadata: pq.FileMetaData, names: list[str]) -> set[str]:
    """Return the columns that have nulls according to the file's statistics.

    In a file without statistics, nulls are found while reading.
    """
    missing = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(row_group.num_columns):
            chunk = row_group.column(at)
            statistics = chunk.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                missing.add(chunk.path_in_schema)
    return missing & set(names)
