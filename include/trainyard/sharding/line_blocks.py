"""Blocks of whole lines of a source file, decompressed, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from trainyard.sharding.csv_quotes import ESCAPES_REMEDY, QUOTES_REMEDY, open_quote
from trainyard.sharding.source_files import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.source_files import SourceFile

READ_ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)
MAX_LINE_BYTES = 64 * 1024**2
BLOCK_BYTES = 4 * 1024**2
_STORED_BYTES = 64 * 1024
"""Compressed bytes read at a time."""
_PADDING_BYTES = 4
"""Zero bytes behind an xz stream are padding if their number is a multiple of this (xz file format 1.2.1, 2.2)."""


class LineFault(NamedTuple):
    """Fault of one line: its content is not valid, so the block has an empty line instead."""

    line: int
    reason: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Block of whole lines of one file.

    Attributes:
        first_line: number of the first line in its file, from 1.
        position: number of stored (possibly compressed) bytes read so far, for progress.
    """

    first_line: int
    data: bytes
    position: int
    faults: tuple[LineFault, ...] = ()


def line_blocks(
    file: SourceFile,
    objects: Objects,
    *,
    block_bytes: int = BLOCK_BYTES,
    delimiter: bytes | None = None,
) -> Iterator[LineBlock]:
    """Yield the file's lines in blocks of about `block_bytes`; a longer line makes a longer block.

    Args:
        file: the file; `max_bytes` cuts it at the last line end within the limit.
        objects: opens remote files.
        block_bytes: bytes read at a time.
        delimiter: the delimiter of csv; line ends inside quoted fields then do not end a line. None for other text.

    Raises:
        DataError: the file cannot be read, or its content does not match its compression suffix.
    """  # noqa: DOC501 - the named function returns a DataError
    try:
        yield from _blocks(file, objects, block_bytes, delimiter=delimiter)
    except READ_ERRORS as error:
        raise unreadable(file, error) from error


def _blocks(
    file: SourceFile, objects: Objects, block_bytes: int, *, delimiter: bytes | None
) -> Iterator[LineBlock]:
    left = file.max_bytes
    carry, first_line = b"", 1
    with opened(file, objects) as (stream, raw):
        while True:
            data = stream.read(block_bytes if left is None else min(left, block_bytes))
            if not data:
                break
            if left is not None:
                left -= len(data)
            whole = carry + data
            cut = _last_line_end(whole, delimiter)
            if len(whole) - cut > MAX_LINE_BYTES:
                line = first_line + whole.count(b"\n", 0, cut)
                raise _too_long(line, is_csv=delimiter is not None)
            if cut:
                yield LineBlock(first_line=first_line, data=whole[:cut], position=raw.tell())
                first_line += whole.count(b"\n", 0, cut)
            carry = whole[cut:]
        if delimiter and carry and open_quote(carry + b"\n", delimiter) is not None:
            if left is not None:
                return  # the cap ends within this row
            raise never_closed(first_line)
        if carry and (left is None or left > 0 or first_line == 1):
            yield LineBlock(first_line=first_line, data=carry, position=raw.tell())


def _too_long(line: int, *, is_csv: bool) -> ValueError:
    quote = f", or a quote at the start of one of its fields is never closed; {QUOTES_REMEDY}"
    return ValueError(f"line {line} is longer than {MAX_LINE_BYTES} bytes{quote if is_csv else ''}")


def never_closed(line: int) -> ValueError:
    """Return the error for a quote that opens a field and is never closed."""
    return ValueError(
        f"a quoted field that starts in line {line} is never closed; {QUOTES_REMEDY}; {ESCAPES_REMEDY}"
    )


@contextmanager
def opened(file: SourceFile, objects: Objects) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file; yield a stream of its decompressed content and a stream of its stored bytes."""
    is_remote = file.is_remote
    with objects.open(file.uri, etag=file.etag) if is_remote else Path(file.uri).open("rb") as raw:
        yield _decompressed(raw, file.compression), raw


def _decompressed(raw: BinaryIO, compression: str | None) -> BinaryIO:
    match compression:
        case None:
            return raw
        case "gzip":
            return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
        case "bz2":
            return io.BufferedReader(_Streams(raw, bz2.BZ2Decompressor))
        case "xz":
            return io.BufferedReader(_Streams(raw, lzma.LZMADecompressor, has_padding=True))
        case _:
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)
            return cast("BinaryIO", stream)


def up_to(stream: BinaryIO, size: int) -> bytes:
    """Return the next bytes of a stream; fewer than `size` only at its end."""
    data = stream.read(size)
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


class _Streams(io.RawIOBase):
    """Decompressed content of a file of several compressed streams, as from `cat a.xz b.xz`.

    `bz2.BZ2File` and `lzma.LZMAFile` are not used: they end without an error at bytes that are not
    another stream, such as padding.

    Args:
        raw: the stored bytes.
        decompressor: returns a decompressor of one stream.
        has_padding: whether zero bytes may follow a stream.
    """

    def __init__(
        self,
        raw: BinaryIO,
        decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
        *,
        has_padding: bool = False,
    ) -> None:
        self._raw, self._decompressor, self._has_padding = raw, decompressor, has_padding
        self._stream = decompressor()
        self._number, self._start = 1, raw.tell()

    def readable(self) -> bool:
        """Return True: this stream can be read (`io.IOBase`)."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read content into a buffer, and return the number of bytes; 0 at the end of the file.

        Raises:
            OSError: the bytes after a stream are not another stream, or a stream is damaged or cut off.
        """
        with memoryview(buffer).cast("B") as view:
            data = b""
            while not data:
                stored = b""
                if self._stream.eof:
                    stored = self._next_stream()
                    if not stored:
                        return 0
                elif self._stream.needs_input:
                    stored = self._raw.read(_STORED_BYTES)
                data = self._decompressed(stored, len(view))
            view[: len(data)] = data
            return len(data)

    def _next_stream(self) -> bytes:
        """Start the next stream and return its first stored bytes; empty at the end of the file.

        Raises:
            OSError: the zero bytes after the previous stream are not valid padding.
        """
        num_zeros, stored = 0, self._stream.unused_data or self._raw.read(_STORED_BYTES)
        while self._has_padding and stored.startswith(b"\0"):
            first = stored.lstrip(b"\0")
            num_zeros += len(stored) - len(first)
            stored = first or self._raw.read(_STORED_BYTES)
        if num_zeros % _PADDING_BYTES:
            raise OSError(
                f"{num_zeros} zero bytes behind stream {self._number}, but padding has a multiple of "
                f"{_PADDING_BYTES} bytes: the file is damaged"
            )
        if stored:
            self._stream = self._decompressor()
            self._number, self._start = self._number + 1, self._raw.tell() - len(stored)
        return stored

    def _decompressed(self, stored: bytes, max_bytes: int) -> bytes:
        place = f"stream {self._number}, from byte {self._start},"
        if not stored and self._stream.needs_input:
            raise OSError(f"{place} is cut off")
        try:
            return self._stream.decompress(stored, max_bytes)
        except (OSError, lzma.LZMAError) as error:
            raise OSError(f"{place} is damaged, or is not a compressed stream: {error}") from error


def _last_line_end(data: bytes, delimiter: bytes | None) -> int:
    """Return the number of bytes up to the end of the last whole line in `data`.

    If a delimiter is given, the data is csv, and the bytes are counted up to the end of the last whole row
    instead. A row may span several lines.
    """
    cut = data.rfind(b"\n") + 1
    if delimiter is None or not cut:
        return cut
    opened = open_quote(data[:cut], delimiter)
    return cut if opened is None else data.rfind(b"\n", 0, opened) + 1
