"""Reader of TFRecord files. It yields their `tf.train.Example` messages as JSON lines.

A record has the layout of `tensorflow/core/lib/io/record_writer.h` in TensorFlow 2.20, little-endian:
length (uint64), checksum of the length (uint32), content, checksum of the content (uint32). A checksum is a
CRC-32C, rotated right by 15 bits, plus a constant. The fields of an example are those of
`tensorflow/core/example/feature.proto`.
"""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from trainyard.errors import DataError
from trainyard.sharding.line_blocks import MAX_LINE_BYTES, up_to
from trainyard.sharding.protobuf_rows import (
    add_value,
    content_of,
    entry_of,
    fields,
    numbers_of,
    record_blocks,
    text_of,
)
from trainyard.sharding.sample_lines import Sample, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.source_files import SourceFile

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK32 = 2**32 - 1
_POLYNOMIAL = 0x82F63B78
_STRIP = 1024
"""Bytes whose values are looked up at once."""
_SHORT = 64
"""Bytes up to which a loop is faster."""
_TEXTS, _FLOATS, _INTS = 1, 2, 3
"""Fields of a `Feature`, of which one is set."""
_TYPES: dict[int, np.dtype[Any]] = {_FLOATS: np.dtype("<f4"), _INTS: np.dtype("<i8")}


def example_blocks(
    file: SourceFile, objects: Objects, *, settings: ShardSettings
) -> Iterator[LineBlock]:
    """Yield the examples of a file as JSON lines in blocks. A column that is not read has the value null.

    Args:
        file: the file.
        objects: opens a remote file.
        settings: `ignore_columns` are not read. If `text_column` is set, only this column is read.

    Raises:
        DataError: the file is damaged, has `SequenceExample`s, or has binary content in a column that is read.
    """
    read = partial(_read, file=file, settings=settings)
    yield from record_blocks(file, objects, records=_records, read=read)


def _records(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the content of each record.

    Raises:
        ValueError: a checksum is wrong, or a record is too large.
        EOFError: the file is cut off.
    """  # noqa: DOC501 - the named functions return these errors
    offset = 0
    while header := up_to(stream, _HEADER.size):
        if len(header) < _HEADER.size:
            raise _cut_off(offset)
        size, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            raise _no_record(offset, header)
        if size > MAX_LINE_BYTES:
            raise too_large(f"the record at byte {offset}", size)
        stored = up_to(stream, size + _CHECKSUM.size)
        if len(stored) < size + _CHECKSUM.size:
            raise _cut_off(offset)
        data = stored[:size]
        if masked_crc32c(data) != _CHECKSUM.unpack_from(stored, size)[0]:
            raise ValueError(f"the content of the record at byte {offset} has a wrong checksum")
        yield offset, data
        offset += len(header) + len(stored)


def _read(data: bytes, sample: Sample, *, file: SourceFile, settings: ShardSettings) -> None:
    """Add the features of an example to a sample.

    Raises:
        ValueError: this is not an example.
        DataError: this is a `SequenceExample`.
    """  # noqa: DOC501 - the named function returns a DataError
    for field in fields(data):
        if field.number == 2:
            raise _sequence(file, sample)
        if field.number != 1:
            raise ValueError(f"not a tf.train.Example (it has a field {field.number})")
        for each in fields(content_of(field)):
            if each.number != 1:
                raise ValueError(
                    f"not a tf.train.Example (its features have a field {each.number})"
                )
            name, feature = entry_of(each)
            add_value(sample, name, feature, _value, noun="feature", file=file, settings=settings)


def _value(data: bytes, *, column: str, is_text: bool, place: str) -> Any:
    """Return the value of a feature: one value as a scalar, no value as None, several as a list.

    Integers in the text column are token ids. They are always a list, even a single one.

    Raises:
        ValueError: this is not a feature, or the text column has several texts.
        DataError: the feature has binary content.
    """
    kind = 0
    values: list[Any] = []
    for field in fields(data):
        if field.number not in {_TEXTS, _FLOATS, _INTS}:
            raise ValueError(f"not a tf.train.Feature (it has a field {field.number})")
        if field.number != kind:
            kind, values = field.number, []  # the last kind counts
        for each in fields(content_of(field)):
            if each.number != 1:
                raise ValueError(
                    f"not a BytesList, FloatList or Int64List (it has a field {each.number})"
                )
            if kind == _TEXTS:
                values.append(text_of(content_of(each), column=column, place=place))
            else:
                values += numbers_of(each, _TYPES[kind])
    if is_text and kind == _INTS:
        return values
    if is_text and len(values) > 1:
        raise ValueError(f"{len(values)} values; allowed is one text, or token ids in an Int64List")
    return values if len(values) > 1 else next(iter(values), None)


def masked_crc32c(data: bytes) -> int:
    """Return the checksum that a TFRecord stores for `data`. Example: `masked_crc32c(b"123456789")` is 0x78167DBD."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _MASK32


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (RFC 3720, 12.1): `crc32c(b"123456789")` is 0xE3069283.

    The data is processed in strips of `_STRIP` bytes. The checksum is the XOR of one table entry
    per byte, so numpy handles a strip at once: about 12 times faster than a loop over the bytes.
    """
    table, bytewise = _tables()
    checksum, at = _MASK32, 0
    if len(data) % _STRIP < _SHORT:
        at = len(data) % _STRIP
        for byte in data[:at]:
            checksum = bytewise[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    while at < len(data):
        size = (len(data) - at) % _STRIP or _STRIP
        strip = np.frombuffer(data, np.uint8, size, at).copy()
        strip[:4] ^= np.frombuffer(_CHECKSUM.pack(checksum), np.uint8)
        checksum = int(np.bitwise_xor.reduce(table[np.arange(_STRIP - size, _STRIP), strip]))
        at += size
    return checksum ^ _MASK32


@cache
def _tables() -> tuple[np.ndarray, list[int]]:
    """Return a table of the checksums (CRC-32C) of single bytes in a strip, and its last row as a list.

    A strip is `_STRIP` bytes that are checked together. `table[position, byte]` is the checksum of the value
    `byte` at `position` in the strip, from 0 to `_STRIP - 1`.
    """
    last = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = np.where(last & 1, last >> 1 ^ np.uint32(_POLYNOMIAL), last >> 1)
    table = np.tile(last, (_STRIP, 1))
    for position in range(_STRIP - 2, -1, -1):
        after = table[position + 1]
        table[position] = last[after & 0xFF] ^ after >> 8
    return table, last.tolist()


def _cut_off(offset: int) -> EOFError:
    return EOFError(f"the file is incomplete: it ends within the record at byte {offset}")


def _no_record(offset: int, header: bytes) -> ValueError:
    """Return the error for a record whose length has a wrong checksum.

    The file may be compressed: TensorFlow adds no suffix such as `.gz` to the names of compressed files.
    """
    fault = (
        f"the length of the record at byte {offset} has a wrong checksum, "
        "so the file is damaged or not a TFRecord file"
    )
    if offset == 0 and header.startswith(b"\x1f\x8b"):
        fault = "the file is compressed with GZIP; add .gz to its name"
    elif offset == 0 and header[:1] == b"x" and int.from_bytes(header[:2]) % 31 == 0:
        fault = "the file is compressed with ZLIB; write it again with GZIP or without compression"
    return ValueError(fault)


def _sequence(file: SourceFile, sample: Sample) -> DataError:
    return DataError(
        "a TFRecord file has a tf.train.SequenceExample",
        job_name="sharding",
        where=f"{file.name}, {sample.name}",
        allowed="tf.train.Example",
        next_step="write each sequence as a feature of a tf.train.Example, or exclude the file with a glob",
    )
