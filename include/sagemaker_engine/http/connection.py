"""HTTP/1.1 connections: read a request, call the WSGI application, send its response, repeat.

Supports keep-alive, ``Expect: 100-continue``, chunked requests and responses, and ``sendfile`` for
`FileBody` responses. Sources: RFC 9112 for the framing, PEP 3333 for the application's side.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import unquote_to_bytes, urlsplit

from sagemaker_engine.http.body import (
    ChunkedRequestBody,
    FileBody,
    RequestBody,
    TruncatedBodyError,
)

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterable
    from wsgiref.types import WSGIApplication

log = logging.getLogger(__name__)

_READ_BUFFER_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 16
_MAX_HEADERS = 256
_DRAIN_BYTES = 64 << 20
_SENDFILE_BYTES = 1 << 30
_MAX_LENGTH_DIGITS = 18  # An exabyte. Python refuses to parse a number of thousands of digits.
_BODILESS = ("204", "304")


class BadRequestError(Exception):
    """A request that the server cannot parse; `status` is the status line of the response."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Connection:
    """Serves one accepted socket until either side ends it."""

    def __init__(
        self, sock: socket.socket, *, client: str, app: WSGIApplication, base: dict[str, Any]
    ) -> None:
        self._sock = sock
        self._app = app
        self._base = {**base, "REMOTE_ADDR": client}
        self._reader = cast("io.BufferedReader", sock.makefile("rb", buffering=_READ_BUFFER_BYTES))
        self.idle = True
        """True between requests: the server may then close the connection without losing a response."""

    def run(self) -> None:
        """Serve requests until the client closes, an error breaks the framing, or keep-alive ends."""
        try:
            while self._serve_one():
                self.idle = True
        except (ConnectionError, TimeoutError, BlockingIOError):
            log.debug("connection from %s ended early", self._base["REMOTE_ADDR"])
        finally:
            self._reader.close()

    def _serve_one(self) -> bool:
        """Serve one request. Return whether the connection stays open."""
        line = self._reader.readline(_MAX_LINE_BYTES)
        if line in {b"\r\n", b"\n"}:
            line = self._reader.readline(_MAX_LINE_BYTES)
        if not line:
            return False
        self.idle = False
        try:
            environ = {**self._base, **_request_line(line), **self._headers()}
            body = self._body(environ)
        except BadRequestError as error:
            text = f"{error.status}\n"
            head = f"HTTP/1.1 {error.status}\r\nContent-Length: {len(text)}\r\n"
            self._sock.sendall(f"{head}Connection: close\r\n\r\n{text}".encode("latin-1"))
            return False
        environ["wsgi.input"] = body
        return Exchange(self._sock, environ, body).run(self._app)

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_MAX_HEADERS):
            line = self._reader.readline(_MAX_LINE_BYTES)
            if line in {b"\r\n", b"\n"}:
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not name or name != name.strip() or not line.endswith(b"\n"):
                raise BadRequestError("400 Bad Request")
            key, text = _environ_key(name), value.strip()
            headers[key] = f"{headers[key]},{text}" if key in headers else text
        raise BadRequestError("431 Request Header Fields Too Large")

    def _body(self, environ: dict[str, Any]) -> RequestBody:
        expects = environ.get("HTTP_EXPECT", "").lower() == "100-continue"
        announce = self._send_continue if expects else None
        if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
            environ.pop("CONTENT_LENGTH", None)
            return ChunkedRequestBody(self._reader, on_first_read=announce)
        length = environ.get("CONTENT_LENGTH", "0")
        if not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS:
            raise BadRequestError("400 Bad Request")
        return RequestBody(
            self._reader, length=int(length), on_first_read=announce if int(length) else None
        )

    def _send_continue(self) -> None:
        self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


class Exchange:
    """One request and its response: calls the application and sends the data that it returns."""

    def __init__(self, sock: socket.socket, environ: dict[str, Any], body: RequestBody) -> None:
        self._sock = sock
        self._environ = environ
        self._body = body
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._sent = False
        self._keep = _wants_keep_alive(environ)

    def run(self, app: WSGIApplication) -> bool:
        """Call `app` and send its response. Return whether the connection can be reused.

        An exception of the application is answered with status 500, unless the response has begun. Connection errors
        are raised.
        """
        answer: Iterable[bytes] = ()
        try:
            answer = app(self._environ, self._start_response)
            self._send(answer)
        except Exception as error:
            if isinstance(error, (ConnectionError, TimeoutError, BlockingIOError)):
                raise
            log.exception("%s %s failed", self._environ["REQUEST_METHOD"], self._environ["RAW_URI"])
            if self._sent:
                return False
            self._status, self._headers = "500 Internal Server Error", []
            self._send([b"internal server error\n"])
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()
        return self._keep and self._finish_request()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: object = None, /
    ) -> Callable[[bytes], object]:
        if exc_info is None and self._status:
            raise RuntimeError("start_response was called twice without exc_info")
        self._status, self._headers = status, list(headers)
        return self._write

    def _write(self, data: bytes) -> None:
        raise NotImplementedError("this server has no write(); return an iterable instead")

    def _send(self, answer: Iterable[bytes]) -> None:
        if isinstance(answer, FileBody):
            self._send_file(answer)
        elif isinstance(answer, (list, tuple)):
            data = b"".join(answer)
            self._send_head(len(data), then=data)
        else:
            self._send_pieces(answer)

    def _send_file(self, answer: FileBody) -> None:
        self._send_head(answer.length, more=answer.length > 0)
        if self._has_body():
            send_file(self._sock, answer.file, offset=answer.offset, length=answer.length)

    def _send_pieces(self, answer: Iterable[bytes]) -> None:
        pieces = iter(answer)
        first = next(pieces, b"")
        chunked = self._send_head(None)
        piece: bytes | None = first
        while piece is not None:
            if piece and self._has_body():
                self._sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            piece = next(pieces, None)
        if chunked and self._has_body():
            self._sock.sendall(b"0\r\n\r\n")

    def _send_head(self, length: int | None, *, then: bytes = b"", more: bool = False) -> bool:
        """Send status line and headers; return whether the body must be sent in chunks.

        Args:
            length: Size of the body in bytes; None if unknown.
            then: First bytes of the body, sent together with the headers.
            more: Whether more data follows at once; the kernel may then wait to fill a packet.
        """
        names = {name.lower() for name, _ in self._headers}
        lines = [f"HTTP/1.1 {self._status}", *(f"{name}: {text}" for name, text in self._headers)]
        chunked = False
        if "content-length" not in names and not self._status.startswith(_BODILESS):
            if length is not None:
                lines.append(f"Content-Length: {length}")
            elif self._environ["SERVER_PROTOCOL"] == "HTTP/1.1":
                lines.append("Transfer-Encoding: chunked")
                chunked = True
            else:
                self._keep = False
        if "date" not in names:
            lines.append(f"Date: {_http_date(int(time.time()))}")
        if self._body.waits_for_continue:
            self._keep = False
        lines.append(f"Connection: {'keep-alive' if self._keep else 'close'}\r\n\r\n")
        head = "\r\n".join(lines).encode("latin-1")
        self._sent = True
        self._sock.sendall(head + (then if self._has_body() else b""), socket.MSG_MORE * more)
        return chunked

    def _has_body(self) -> bool:
        method = self._environ["REQUEST_METHOD"]
        return method != "HEAD" and not self._status.startswith(_BODILESS)

    def _finish_request(self) -> bool:
        """Discard the unread rest of the body; return whether its end was reached and the next request can follow."""
        return self._body.discard(_DRAIN_BYTES)


def send_file(sock: socket.socket, file: BinaryIO, *, offset: int, length: int) -> None:
    """Send `length` bytes of `file` from `offset` without copying them through this process.

    Raises:
        TruncatedBodyError: The file is shorter than offset + length.
    """
    while length:
        sent = os.sendfile(sock.fileno(), file.fileno(), offset, min(length, _SENDFILE_BYTES))
        if sent == 0:
            raise TruncatedBodyError(
                f"the file {file.name} ended {length} bytes before its expected length"
            )
        offset += sent
        length -= sent


def _request_line(line: bytes) -> dict[str, str]:
    words = line.decode("latin-1").split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError("400 Bad Request" if line.endswith(b"\n") else "414 URI Too Long")
    method, target, version = words
    if not target.startswith("/") and target != "*":
        try:
            parts = urlsplit(target)
        except ValueError as error:  # For example an IPv6 address without its closing bracket.
            raise BadRequestError("400 Bad Request") from error
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path, _, query = target.partition("?")
    return {
        "REQUEST_METHOD": method,
        "RAW_URI": target,
        "REQUEST_URI": target,
        "PATH_INFO": unquote_to_bytes(path.encode("latin-1")).decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": version,
    }


@lru_cache(maxsize=1024)
def _environ_key(name: str) -> str:
    key = name.upper().replace("-", "_")
    return key if key in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{key}"


def _wants_keep_alive(environ: dict[str, Any]) -> bool:
    wish = environ.get("HTTP_CONNECTION", "").lower()
    if environ["SERVER_PROTOCOL"] == "HTTP/1.1":
        return "close" not in wish
    return "keep-alive" in wish


@lru_cache(maxsize=4)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
