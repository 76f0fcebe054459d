"""Reader of RecordIO files with the protobuf `Record` of SageMaker. It yields the records as JSON lines.

Layout as in `dmlc/recordio.h` of mxnet 1.9.1, little-endian: magic (uint32), flag (3 bits) and size (29 bits), content,
padding to four bytes. Messages as in `record.proto` (`aialgs.data`) of sagemaker-training 5.1.4.
"""

from __future__ import annotations

import math
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from trainyard.errors import DataError
from trainyard.sharding.line_blocks import MAX_LINE_BYTES, up_to
from trainyard.sharding.protobuf_rows import (
    Field,
    add_value,
    content_of,
    entry_of,
    fields,
    numbers_of,
    record_blocks,
    text_of,
)
from trainyard.sharding.sample_lines import Sample, too_large
from trainyard.sharding.table_schema import unsupported_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.source_files import SourceFile

_HEADER = struct.Struct("<II")
_MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
_SIZE_BITS = 29
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_ALIGNMENT = 4
_FEATURES, _LABEL = 1, 2
_ANNOTATIONS = frozenset({3, 4, 5})
"""Fields `uid`, `metadata` and `configuration` of a record, which are not read."""
_BYTES = 9
_TENSORS: dict[int, np.dtype[Any]] = {2: np.dtype("<f4"), 3: np.dtype("<f8"), 7: np.dtype("<i4")}
"""Fields of a `Value`, of which one is set, beside `_BYTES`."""
_UINT64 = np.dtype("<u8")
_IMAGE_HEADER = struct.Struct("<IfQQ")
"""Header of `mxnet.recordio.pack`: number of labels, label, two identifiers. Several labels follow it, as float32."""
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG")


def record_io_blocks(
    file: SourceFile, objects: Objects, *, settings: ShardSettings
) -> Iterator[LineBlock]:
    """Yield the records of a file as JSON lines in blocks. A column that is not read has the value null.

    Args:
        file: the file.
        objects: opens a remote file.
        settings: `ignore_columns` are not read. If `text_column` is set, only this column is read.

    Raises:
        DataError: the file is damaged, has images of MXNet, or has sparse tensors or binary content in a column that
            is read.
    """
    read = partial(_read, file=file, settings=settings)
    yield from record_blocks(file, objects, records=records_of, read=read)


def records_of(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the content of each record.

    If a record has several parts, its content includes the magic number between them.

    Raises:
        ValueError: the framing is damaged, or a record is too large.
        EOFError: the file is cut off.
    """  # noqa: DOC501 - the named function returns a ValueError
    offset = start = 0
    parts: list[bytes] = []
    while header := up_to(stream, _HEADER.size):
        if len(header) < _HEADER.size:
            raise _cut_off(start)
        magic, word = _HEADER.unpack(header)
        flag, size = divmod(word, 2**_SIZE_BITS)
        if magic != _MAGIC:
            raise ValueError(
                f"no record begins at byte {offset}: not a RecordIO file, or a damaged one"
            )
        if flag > _LAST or (flag in {_MIDDLE, _LAST}) != bool(parts):
            raise ValueError(f"the part of a record at byte {offset} has the wrong flag {flag}")
        if size + sum(map(len, parts)) > MAX_LINE_BYTES:
            raise too_large(f"the record at byte {start}", size)
        stored_size = size + -size % _ALIGNMENT
        stored = up_to(stream, stored_size)
        if len(stored) < stored_size:
            raise _cut_off(start)
        parts.append(stored[:size])
        offset += len(header) + stored_size
        if flag in {_WHOLE, _LAST}:
            yield start, _MAGIC_BYTES.join(parts)
            parts, start = [], offset
    if parts:
        raise _cut_off(start)


def _read(data: bytes, sample: Sample, *, file: SourceFile, settings: ShardSettings) -> None:
    """Add the features and the label of a record to a sample.

    Raises:
        ValueError: this is not a record.
        DataError: this is an image of MXNet.
    """  # noqa: DOC501 - the named function returns a DataError
    if _is_image(data):
        raise _image(file, sample)
    for field in fields(data):
        if field.number in _ANNOTATIONS:
            continue
        if field.number not in {_FEATURES, _LABEL}:
            raise ValueError(f"not a Record of SageMaker (it has a field {field.number})")
        name, value = entry_of(field)
        if field.number == _LABEL:
            name = "label" if name == "values" else f"label.{name}"
        add_value(sample, name, value, _value, noun="tensor", file=file, settings=settings)


def _value(data: bytes, *, column: str, is_text: bool, place: str) -> Any:
    """Return the value that an encoded `Value` has.

    A single number or text is returned as it is, and an empty value as None. Several numbers are
    returned as a dict by position ("0", "1", ...), which becomes one column per position. For the
    text column, a tensor is returned as a list of token ids.

    Raises:
        ValueError: this is not a value of a record.
        DataError: it has a sparse tensor, a tensor of several axes, or binary content.
    """
    kind = 0
    parts: list[Field] = []
    for field in fields(data):
        if field.number not in {_BYTES, *_TENSORS}:
            raise ValueError(f"not a Value of a Record (it has a field {field.number})")
        if field.number != kind:
            kind, parts = field.number, []  # the last kind counts
        parts += fields(content_of(field))
    if kind == _BYTES:
        texts = [content_of(each) for each in parts if each.number == 1]
        if len(texts) > 1:
            raise ValueError(
                f"feature {column} has {len(texts)} byte strings; a record may have one per feature"
            )
        return text_of(texts[0], column=column, place=place) if texts else None
    values = _dense(parts, _TENSORS[kind], column=column, place=place) if kind else []
    if is_text:
        return values if kind else None
    if len(values) > 1:
        return {str(position): value for position, value in enumerate(values)}
    return next(iter(values), None)


def _dense(parts: list[Field], dtype: np.dtype[Any], *, column: str, place: str) -> list[Any]:
    """Return the values of the tensor whose message has the fields `parts`.

    Raises:
        ValueError: the message is not a tensor.
        DataError: the tensor is sparse, or has several axes.
    """  # noqa: DOC501 - the named function returns a DataError
    values, keys, shape = (
        [value for each in parts if each.number == number for value in numbers_of(each, kind)]
        for number, kind in ((1, dtype), (2, _UINT64), (3, _UINT64))
    )
    if keys or (shape and math.prod(shape) != len(values)):
        got = f"a sparse tensor: {len(values)} values, {len(keys)} keys, shape {shape}"
        raise unsupported_type(column, got, remedy="write it as a dense tensor", place=place)
    if len(shape) > 1:
        got = f"a tensor of shape {shape}"
        raise unsupported_type(column, got, remedy="write it with one axis", place=place)
    return values


def _is_image(data: bytes) -> bool:
    if len(data) < _IMAGE_HEADER.size:
        return False
    num_labels = _IMAGE_HEADER.unpack_from(data)[0]
    return data.startswith(_IMAGES, _IMAGE_HEADER.size + 4 * num_labels)


def _cut_off(offset: int) -> EOFError:
    return EOFError(f"the file is incomplete: it ends within the record at byte {offset}")


def _image(file: SourceFile, sample: Sample) -> DataError:
    return DataError(
        "a RecordIO file contains images in MXNet's format",
        job_name="sharding",
        where=f"{file.name}, {sample.name}",
        allowed="RecordIO files of SageMaker's Record messages (application/x-recordio-protobuf)",
        next_step="read the images in your own training script, or exclude the file with a glob",
    )
