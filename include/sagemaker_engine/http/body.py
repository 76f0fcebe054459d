"""Bodies of requests and responses of the engine's HTTP server.

Bodies are streamed. A request body is read in pieces as the application requests them. A response with the content of a
file is a `FileBody`, which the server sends with ``sendfile``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator

_COPY_BYTES = 1 << 20
_MAX_CHUNK_LINE = 1024


class TruncatedBodyError(ConnectionError):
    """A body is incomplete: its connection closed, its framing is invalid, or its file is too short."""


class RequestBody:
    """A request's body as WSGI's ``wsgi.input``, with `readinto` for readers that avoid a copy."""

    def __init__(
        self,
        stream: io.BufferedReader[Any],
        *,
        length: int = 0,
        on_first_read: Callable[[], None] | None = None,
    ) -> None:
        self._stream = stream
        self._left = length
        self._on_first_read = on_first_read

    @property
    def waits_for_continue(self) -> bool:
        """True if the client has not sent its body yet and waits for ``100 Continue``."""
        return self._on_first_read is not None

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill `buffer` and return the number of bytes read.

        The number is less than the buffer's size only at the end of the body.

        Raises `TruncatedBodyError` if the connection ends before the body.
        """
        view = memoryview(buffer)
        filled = 0
        while filled < len(view) and (left := self._segment()):
            count = self._stream.readinto(view[filled : filled + left])
            self._took(count)
            filled += count or 0
        return filled

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all remaining bytes if `size` is negative or None."""
        if size is not None and size >= 0:
            buffer = bytearray(size)
            return bytes(memoryview(buffer)[: self.readinto(buffer)])
        pieces = []
        while piece := self.read(_COPY_BYTES):
            pieces.append(piece)
        return b"".join(pieces)

    def readline(self, size: int = -1) -> bytes:
        """Return the next line with its newline, or its first `size` bytes if `size` is not negative."""
        line = b""
        while not line.endswith(b"\n") and (left := self._segment()):
            limit = left if size < 0 else min(left, size - len(line))
            if limit == 0:
                break
            piece = self._stream.readline(limit)
            self._took(len(piece))
            line += piece
        return line

    def readlines(self, hint: int = -1) -> list[bytes]:
        """Return the remaining lines; if `hint` is positive, stop after about `hint` bytes."""
        lines: list[bytes] = []
        size = 0
        for line in self:
            lines.append(line)
            size += len(line)
            if 0 < hint <= size:
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        while line := self.readline():
            yield line

    def discard(self, limit_bytes: int) -> bool:
        """Read and drop up to `limit_bytes` of the unread body; return whether its end was reached."""
        buffer = bytearray(min(_COPY_BYTES, max(limit_bytes, 1)))
        while limit_bytes > 0:
            count = self.readinto(memoryview(buffer)[: min(len(buffer), limit_bytes)])
            if count == 0:
                return True
            limit_bytes -= count
        return self._segment() == 0

    def _segment(self) -> int:
        """Return the number of bytes to read before the framing must be checked again; 0 at the end."""
        if self._on_first_read is not None and self._left:
            announce, self._on_first_read = self._on_first_read, None
            announce()
        return self._left

    def _took(self, count: int | None) -> None:
        if not count:
            raise TruncatedBodyError(f"the request body ended {self._left} bytes early")
        self._left -= count


class ChunkedRequestBody(RequestBody):
    """A body sent with ``Transfer-Encoding: chunked`` (RFC 9112, section 7.1)."""

    def __init__(
        self, stream: io.BufferedReader[Any], *, on_first_read: Callable[[], None] | None = None
    ) -> None:
        super().__init__(stream, on_first_read=on_first_read)
        self._started = False
        self._ended = False

    def _segment(self) -> int:
        if self._left or self._ended:
            return self._left
        if self._on_first_read is not None:
            announce, self._on_first_read = self._on_first_read, None
            announce()
        if self._started:
            self._stream.readline(_MAX_CHUNK_LINE)
        self._started = True
        self._left = self._chunk_size()
        if self._left == 0:
            self._ended = True
            while self._stream.readline(_MAX_CHUNK_LINE).strip():
                pass
        return self._left

    def _chunk_size(self) -> int:
        line = self._stream.readline(_MAX_CHUNK_LINE)
        try:
            size = int(line.split(b";", 1)[0].strip(), 16)
        except ValueError as error:
            raise TruncatedBodyError(f"bad chunk header {line[:40]!r}") from error
        if size < 0:
            raise TruncatedBodyError(f"bad chunk header {line[:40]!r}")
        return size


class FileBody:
    """A range of a file, in bytes, as a WSGI response body.

    This package's server sends it with ``sendfile``; any other WSGI server iterates over it. `close`
    closes the file.
    """

    def __init__(self, file: BinaryIO, *, offset: int, length: int) -> None:
        self.file = file
        self.offset = offset
        self.length = length

    def __iter__(self) -> Iterator[bytes]:
        self.file.seek(self.offset)
        left = self.length
        while left and (piece := self.file.read(min(left, _COPY_BYTES))):
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        self.file.close()
