"""Samples of WebDataset, MDS, TFRecord and RecordIO files, converted to JSON lines.

The reader of JSON lines then derives the columns and their types, and checks the values.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.sharding.jsonl_rows import DECODER, RepeatingObject
from trainyard.sharding.line_blocks import BLOCK_BYTES, MAX_LINE_BYTES, LineBlock, LineFault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

_encode = json.JSONEncoder(ensure_ascii=False).encode
SOURCE_BYTES_AT_ONCE = 16 * BLOCK_BYTES
"""Approximate bytes of a file in one block. Most of them may be values that are not read, such as images."""


class Sample:
    """Values of one sample by column, and its first fault.

    Attributes:
        name: name of the sample in messages.
        offset: its position in the decompressed file.
        fault: reason and content of the fault; None without one.
    """

    def __init__(self, name: str, offset: int) -> None:
        self.name, self.offset = name, offset
        self.fault: tuple[str, bytes] | None = None
        self._values: dict[str, Any] = {}

    def add(self, column: str, value: Any, *, place: str) -> None:
        """Add the value of a column. `place` names the value in the message of a fault.

        A column can have one value only. A second value is a fault of the sample.
        """
        if column in self._values:
            self.fault = self.fault or (f"two values: column {column!r}, {place}", b"")
        self._values[column] = value

    def add_decoded(
        self,
        column: str,
        data: bytes,
        decode: Callable[[bytes], Any],
        *,
        place: str,
        ignored: Collection[str],
    ) -> None:
        """Decode a value and add it. Each field of a JSON object becomes a column, such as `json.width`.

        `place` names the value in the message of a fault. Fields whose column is in `ignored` get None instead of
        their value.
        """
        try:
            value = decode(data)
        except UnicodeDecodeError as error:
            self.fault = self.fault or (f"{place} is not UTF-8: {error.reason}", data)
        except (ValueError, RecursionError) as error:
            self.fault = self.fault or (f"invalid value in {place}: {error}", data)
        else:
            if isinstance(value, RepeatingObject):
                repeated = ", ".join(map(repr, sorted(value.repeated)))
                self.fault = self.fault or (f"repeated key: {repeated}, {place}", data)
            if not isinstance(value, dict):
                self.add(column, value, place=place)
                return
            for field, each in value.items():
                name = f"{column}.{field}"
                self.add(name, None if name in ignored else each, place=place)

    def line(self) -> bytes:
        """Return the values as JSON, or an empty line if there is a fault."""
        if self.fault is None:
            try:
                return _encode(self._values).encode()
            except UnicodeEncodeError:
                self.fault = (f"not UTF-8: half a surrogate pair in {self.name}", b"")
        return b""


def sample_lines(
    samples: Iterable[Sample], position: Callable[[], int], *, max_bytes: int | None
) -> Iterator[LineBlock]:
    """Yield samples as JSON lines in blocks. Line n is sample n; it is empty if the sample has a fault.

    Args:
        samples: samples of one file.
        position: returns the number of stored bytes of the file that have been read.
        max_bytes: limit in bytes of the decompressed file. Samples that begin at or after it are not read,
            except the first sample. None reads all.

    Raises:
        ValueError: a sample is too large.
    """  # noqa: DOC501 - the named function returns a ValueError
    lines: list[bytes] = []
    faults: list[LineFault] = []
    first, size, start = 1, 0, 0
    for number, sample in enumerate(samples, start=1):
        if number > 1 and max_bytes is not None and sample.offset >= max_bytes:
            break
        line = sample.line()
        if len(line) > MAX_LINE_BYTES:
            raise too_large(sample.name, len(line))
        if sample.fault:
            faults.append(LineFault(number, *sample.fault))
        lines.append(line)
        size += len(line)
        if size >= BLOCK_BYTES or sample.offset - start >= SOURCE_BYTES_AT_ONCE:
            yield _block(lines, faults, first, position())
            lines, faults = [], []
            first, size, start = number + 1, 0, sample.offset
    if lines:
        yield _block(lines, faults, first, position())


def _block(lines: list[bytes], faults: list[LineFault], first: int, position: int) -> LineBlock:
    data = b"\n".join([*lines, b""])
    return LineBlock(first_line=first, data=data, position=position, faults=tuple(faults))


def decode_json(data: bytes) -> Any:
    """Return a JSON value. Raises a ValueError if it is invalid, or has a number beyond float64."""
    return DECODER.decode(data.decode("utf-8-sig"))


def too_large(what: str, size: int) -> ValueError:
    """Return the error for a sample or a value that is too large."""
    return ValueError(f"{what} has {size} bytes; at most {MAX_LINE_BYTES} are allowed")
