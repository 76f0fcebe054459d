"""Reader of MDS shards, the format of mosaicml-streaming. It yields their samples as JSON lines.

Layout as in `streaming/base/format/mds` of mosaicml-streaming 0.13, little-endian: number of samples n (uint32), n + 1
offsets (uint32), the columns as JSON, the samples. A sample has the size (uint32) of each value whose column has no
fixed size, then the values.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from trainyard.sharding.line_blocks import MAX_LINE_BYTES, READ_ERRORS, opened, up_to
from trainyard.sharding.sample_lines import Sample, decode_json, sample_lines, too_large
from trainyard.sharding.source_files import unreadable
from trainyard.sharding.table_schema import unsupported_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.source_files import SourceFile

SCALARS = {
    f"{kind}{bits}": f"<{kind[0]}{bits // 8}"
    for kind in ("int", "uint")
    for bits in (8, 16, 32, 64)
}
SCALARS |= {"float16": "<f2", "float32": "<f4", "float64": "<f8", "int": "<i8"}
ARRAY_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
"""Types of arrays by the code in the value, for columns whose encoding has no type."""
_SIZE = np.dtype("<u4")
_AT_ONCE = 1024**2
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf)")


class _Column(NamedTuple):
    """Column of a shard.

    Attributes:
        size: size of each value in bytes; None if it varies.
        decode: returns the value for its stored bytes; None for a column that is not read.
    """

    name: str
    size: int | None
    decode: Callable[[bytes], Any] | None


def shard_blocks(
    file: SourceFile, objects: Objects, *, settings: ShardSettings
) -> Iterator[LineBlock]:
    """Yield the samples of a shard as JSON lines in blocks. A column that is not read has the value null.

    Args:
        file: the shard.
        objects: opens a remote shard.
        settings: `ignore_columns` are not read. If `text_column` is set, only this column and JSON
            columns are read.

    Raises:
        DataError: the shard cannot be read, or a column that is read has an unsupported type.
    """  # noqa: DOC501 - the named functions return a DataError
    try:
        with opened(file, objects) as (stream, raw):
            samples = _samples(file, stream, settings)
            yield from sample_lines(samples, raw.tell, max_bytes=file.max_bytes)
    except READ_ERRORS as error:
        raise unreadable(file, error) from error


def _samples(file: SourceFile, stream: BinaryIO, settings: ShardSettings) -> Iterator[Sample]:
    """Yield the samples of a shard in order.

    Raises:
        ValueError: the shard is damaged.
    """
    count = int(_numbers(stream, 1)[0])
    if count * _SIZE.itemsize > MAX_LINE_BYTES:
        raise ValueError(f"a header with {count} samples: not an MDS shard, or a damaged one")
    offsets = _numbers(stream, count + 1)
    header = _SIZE.itemsize * (count + 2)
    if offsets[0] < header or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise ValueError("the offsets of the samples are wrong: not an MDS shard, or a damaged one")
    columns = _columns(file, _exactly(stream, int(offsets[0]) - header), settings)
    for number in range(count):
        start, size = int(offsets[number]), int(offsets[number + 1]) - int(offsets[number])
        yield _sample(stream, columns, Sample(f"sample {number + 1}", start), size, settings)
    if stream.read(1):
        raise ValueError("content follows the last sample")


def _sample(
    stream: BinaryIO, columns: list[_Column], sample: Sample, size: int, settings: ShardSettings
) -> Sample:
    """Read the values of a sample from the stream, add them to `sample`, and return it.

    The stored sample has `size` bytes.

    Raises:
        ValueError: the sizes of the values do not add up to `size`, or a value is too large.
    """  # noqa: DOC501 - the named function returns a ValueError
    num_given = sum(column.size is None for column in columns)
    given = iter(_numbers(stream, num_given).tolist())
    sizes = [next(given) if column.size is None else column.size for column in columns]
    if sum(sizes) + num_given * _SIZE.itemsize != size:
        raise ValueError(f"{sample.name} is damaged: the sizes of its values do not match its size")
    for column, value_bytes in zip(columns, sizes, strict=True):
        place = f"column {column.name!r}"
        if column.decode is None:
            _skip(stream, value_bytes)
            sample.add(column.name, None, place=place)
            continue
        if value_bytes > MAX_LINE_BYTES:
            raise too_large(f"{place} of {sample.name}", value_bytes)
        data = _exactly(stream, value_bytes)
        sample.add_decoded(
            column.name, data, column.decode, place=place, ignored=settings.ignore_columns
        )
    return sample


def _columns(file: SourceFile, header: bytes, settings: ShardSettings) -> list[_Column]:
    """Return the columns that the header of a shard describes.

    Raises:
        ValueError: this is not the header of an MDS shard of version 2.
        DataError: a column that is read has an unsupported type.
    """
    content = json.loads(header)
    try:
        kind = (content["format"], content["version"])
        described = list(
            zip(
                content["column_names"],
                content["column_encodings"],
                content["column_sizes"],
                strict=True,
            )
        )
    except (KeyError, TypeError) as error:
        raise ValueError("the header has no columns of an MDS shard") from error
    if kind != ("mds", 2):
        raise ValueError(f"format {kind[0]!r}, version {kind[1]!r}; allowed is mds, version 2")
    columns = []
    for name, encoding, size in described:
        wanted = settings.text_column in {None, name} or encoding == "json"
        is_read = wanted and name not in settings.ignore_columns
        decode = _decoder(file, name, encoding) if is_read else None
        columns.append(_Column(name, size, decode))
    return columns


def _decoder(file: SourceFile, name: str, encoding: str) -> Callable[[bytes], Any]:
    """Return the function that reads the values of a column.

    Raises:
        DataError: the encoding is not supported.
    """  # noqa: DOC501 - the named function returns a DataError
    kind, _, rest = encoding.partition(":")
    if kind in SCALARS:
        return partial(_scalar, dtype=np.dtype(SCALARS[kind]))
    if kind == "ndarray":
        return partial(_array, described=rest)
    if kind in DECODERS:
        return DECODERS[kind]
    raise unsupported_type(
        name,
        encoding,
        remedy="write it as str, json, a number or ndarray",
        place=file.name,
    )


def _scalar(data: bytes, *, dtype: np.dtype[Any]) -> int | float:
    """Return a number. Raises a ValueError if the data has another size than the type."""
    (value,) = np.frombuffer(data, dtype).tolist()
    return value  # type: ignore[no-any-return]


def _array(data: bytes, *, described: str) -> Any:
    """Return an array as nested lists.

    Args:
        data: the stored value. Type and shape are at its start if `described` does not have them.
        described: type and shape from the column's encoding, such as `int64:2,3`; may be empty.

    Raises:
        ValueError: the type is unknown, or the number of values does not match the shape.
    """
    name, _, fixed = described.partition(":")
    if not name:
        name, data = ARRAY_TYPES.get(data[0] if data else -1, ""), data[1:]
    if name not in SCALARS:
        raise ValueError(f"an array has the type {name!r}; allowed: {', '.join(SCALARS)}")
    shape = [int(each) for each in fixed.split(",")] if fixed else None
    if shape is None:
        num_axes, width = divmod(data[0], 4) if data else (0, 0)
        end = 1 + num_axes * 2**width
        shape = np.frombuffer(data[1:end], f"<u{2**width}").tolist()
        data = data[end:]
    return np.frombuffer(data, SCALARS[name]).reshape(shape).tolist()


def _number(data: bytes) -> int | float:
    """Return a number that is stored as text.

    Raises:
        ValueError: the text is not a number, or the number is beyond float64.
    """
    if _NOT_FINITE.fullmatch(data.lower()):
        return float(data)
    value = decode_json(data)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")  # noqa: TRY004 - a fault of the value
    return value


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "str": bytes.decode,
    "json": decode_json,
    "str_int": _number,
    "str_float": _number,
    "str_decimal": _number,
}


def _numbers(stream: BinaryIO, count: int) -> np.ndarray:
    return np.frombuffer(_exactly(stream, count * _SIZE.itemsize), _SIZE)


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0:
        size -= len(_exactly(stream, min(size, _AT_ONCE)))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Return the next bytes of the stream.

    Raises:
        EOFError: the stream has fewer.
    """
    data = up_to(stream, size)
    if len(data) < size:
        raise EOFError("the shard is incomplete: it ends before the last sample")
    return data
