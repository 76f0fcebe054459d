"""Reader of record files whose records are protocol buffers. It yields the records as JSON lines.

This module knows only the wire format (protobuf.dev/programming-guides/encoding). The messages of a file
format are defined in the module of that format. They have few fields, which do not change.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from trainyard.sharding.line_blocks import READ_ERRORS, opened
from trainyard.sharding.sample_lines import Sample, sample_lines
from trainyard.sharding.source_files import unreadable
from trainyard.sharding.table_schema import unsupported_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.source_files import SourceFile

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of a field."""
_FIXED = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT = 10
_BITS = 7
_MORE = 1 << _BITS
_MASK64 = 2**64 - 1


class Field(NamedTuple):
    """Field of a message: its number, wire type and content, which is an int if the wire type is `VARINT`."""

    number: int
    wire_type: int
    content: Any


def record_blocks(
    file: SourceFile,
    objects: Objects,
    *,
    records: Callable[[BinaryIO], Iterable[tuple[int, bytes]]],
    read: Callable[[bytes, Sample], None],
) -> Iterator[LineBlock]:
    """Yield the records of a file as JSON lines in blocks.

    Args:
        file: the file.
        objects: opens a remote file.
        records: yields the offset and the content of each record of a stream.
        read: adds the values of a record to a sample; a ValueError makes it a bad row.

    Raises:
        DataError: the file cannot be read.
    """  # noqa: DOC501 - the named function returns a DataError

    def samples(stream: BinaryIO) -> Iterator[Sample]:
        for number, (offset, data) in enumerate(records(stream), start=1):
            sample = Sample(f"record {number}", offset)
            try:
                read(data, sample)
            except UnicodeDecodeError as error:
                sample.fault = sample.fault or (f"not UTF-8: a name: {error.reason}", data)
            except ValueError as error:
                sample.fault = sample.fault or (f"invalid record: {error}", data)
            yield sample

    try:
        with opened(file, objects) as (stream, raw):
            yield from sample_lines(samples(stream), raw.tell, max_bytes=file.max_bytes)
    except READ_ERRORS as error:
        raise unreadable(file, error) from error


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order.

    Raises:
        ValueError: this is not a message, or it is cut off.
    """  # noqa: DOC501 - the named function returns a ValueError
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field with the number 0: not a protocol buffer, or a damaged one")
        if wire_type == VARINT:
            value, at = _varint(data, at)
            yield Field(number, wire_type, value)
            continue
        if wire_type == BYTES:
            size, at = _varint(data, at)
        elif wire_type in _FIXED:
            size = _FIXED[wire_type]
        else:
            raise ValueError(
                f"field {number} has the wire type {wire_type}; allowed are 0, 1, 2, 5"
            )
        if size > end - at:
            raise _cut_off()
        yield Field(number, wire_type, data[at : at + size])
        at += size


def content_of(field: Field) -> bytes:
    """Return the content of a field that is a message, a text or bytes.

    Raises:
        ValueError: it has another wire type.
    """
    if field.wire_type != BYTES:
        raise ValueError(
            f"field {field.number} has the wire type {field.wire_type}; a message, a text and bytes have {BYTES}: "
            "the record is damaged, or of another format"
        )
    return field.content  # type: ignore[no-any-return]


def entry_of(field: Field) -> tuple[str, bytes]:
    """Return the key and the value of an entry of a map from names to messages.

    Raises:
        ValueError: this is not such an entry, or its key is not UTF-8.
    """
    key, value = b"", b""
    for each in fields(content_of(field)):
        if each.number == 1:
            key = content_of(each)
        elif each.number == 2:
            value += content_of(each)  # parts of a message are merged
        else:
            raise ValueError(
                f"an entry of a map has the unknown field {each.number}; allowed are 1, the key, and 2, the value"
            )
    return key.decode(), value


def add_value(
    sample: Sample,
    name: str,
    data: bytes,
    value_of: Callable[..., Any],
    *,
    noun: str,
    file: SourceFile,
    settings: ShardSettings,
) -> None:
    """Add a named value of a record to a sample. If no column needs the value, add None without decoding it.

    Args:
        sample: the record's sample.
        name: the value's name.
        data: the encoded value.
        value_of: returns the decoded value. Its keyword arguments are `column`, `is_text` (true for the text
            column) and `place` (file and record, for errors).
        noun: the format's word for such a value, such as `tensor`.
        file: the record's file.
        settings: the settings, with the names of the text column and of the ignored columns.
    """
    place = f"{noun} {name!r}"
    if name in settings.ignore_columns or settings.text_column not in {None, name}:
        sample.add(name, None, place=place)
        return
    decode = partial(
        value_of,
        column=name,
        is_text=name == settings.text_column,
        place=f"{file.name}, {sample.name}",
    )
    sample.add_decoded(name, data, decode, place=place, ignored=settings.ignore_columns)


def numbers_of(field: Field, dtype: np.dtype[Any]) -> list[Any]:
    """Return the numbers of a field: either one number, or several that are packed into bytes.

    Whole numbers are varints. Floats have a fixed size.

    Raises:
        ValueError: the field does not have numbers of type `dtype`.
    """
    wire_type = VARINT if dtype.kind in "iu" else {4: FIXED32, 8: FIXED64}[dtype.itemsize]
    if field.wire_type not in {wire_type, BYTES}:
        raise ValueError(
            f"field {field.number} has the wire type {field.wire_type}; numbers of type {dtype} have {wire_type} or "
            f"{BYTES}: the record is damaged, or of another format"
        )
    if wire_type != VARINT:
        return _listed(np.frombuffer(field.content, dtype))
    if field.wire_type == VARINT:
        values = [field.content]
    elif len(field.content) > _MAX_VARINT:
        return _listed(_varints(field.content).astype(dtype))
    else:
        values, at = [], 0
        while at < len(field.content):
            value, at = _varint(field.content, at)
            values.append(value)
    return _listed(np.array(values, np.uint64).astype(dtype))


def _listed(values: np.ndarray) -> list[Any]:
    return values.tolist()  # type: ignore[no-any-return]


def text_of(data: bytes, *, column: str, place: str) -> str:
    """Return the bytes of a value as text; `column` and `place` are for the error's message.

    Raises:
        UnicodeDecodeError: the bytes are not UTF-8, and have no zero byte.
        DataError: the bytes are not UTF-8, and have a zero byte, as images and other binary content do.
    """  # noqa: DOC501 - the named function returns a DataError
    try:
        return data.decode()
    except UnicodeDecodeError:
        if b"\0" not in data:
            raise
    raise unsupported_type(
        column, "binary content", remedy="write it as text in UTF-8", place=place
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint (at most 64 bits) at position `at`, and the position after it.

    Raises:
        ValueError: the data ends within the varint, or it has more than 10 bytes.
    """
    if at < len(data) and data[at] < _MORE:
        return data[at], at + 1
    value = 0
    for position, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & (_MORE - 1)) << _BITS * position
        if byte < _MORE:
            return value & _MASK64, at + position + 1
    raise _too_long() if len(data) - at >= _MAX_VARINT else _cut_off()


def _varints(data: bytes) -> np.ndarray:
    """Return the numbers of packed varints, as uint64.

    Raises:
        ValueError: the data ends within a number, or a number has more than 10 bytes.
    """  # noqa: DOC501 - the named function returns a ValueError
    stored = np.frombuffer(data, np.uint8)
    if not len(stored):
        return np.empty(0, np.uint64)
    if stored[-1] >= _MORE:
        raise _cut_off()
    ends = np.flatnonzero(stored < _MORE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > _MAX_VARINT:
        raise _too_long()
    shifts = _BITS * (np.arange(len(stored)) - np.repeat(starts, sizes))
    parts = (stored & (_MORE - 1)).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(parts, starts)


def _cut_off() -> ValueError:
    return ValueError("a protocol buffer is cut off")


def _too_long() -> ValueError:
    return ValueError(f"a number of more than {_MAX_VARINT} bytes in a protocol buffer")
