"""The engine's HTTP server: one thread per connection, for any WSGI application.

werkzeug's and the standard library's servers do not fit. They parse headers with `email`, and they do not
send files with ``sendfile``. They also close connections and buffer bodies, although S3 clients need
keep-alive and streaming.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from sagemaker_engine.http.body import FileBody
from sagemaker_engine.http.connection import Connection

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

__all__ = ["FileBody", "Server", "serve"]

log = logging.getLogger(__name__)

_BACKLOG = 1024
_IDLE_S = 300


def serve(app: WSGIApplication, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve `app` in background threads and return the running server.

    Port 0 selects a free port; `Server.port` is its number. Raises OSError if the address cannot be bound:
    it is in use, or not an address of this machine.
    """
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    server = Server(app, listener)
    server.start()
    return server


class Server:
    """A running server. It answers requests in threads until `shutdown`."""

    def __init__(self, app: WSGIApplication, listener: socket.socket) -> None:
        self._app = app
        self._listener = listener
        self.host: str = listener.getsockname()[0]
        self.port: int = listener.getsockname()[1]
        self._open: dict[Connection, socket.socket] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="http-accept", daemon=True)

    @property
    def url(self) -> str:
        """The server's base address, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Start accepting connections."""
        self._acceptor.start()

    def shutdown(self, *, grace_s: float = 5.0) -> None:
        """Stop accepting, wait up to `grace_s` seconds for running requests, then close all connections."""
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        deadline = time.monotonic() + grace_s
        while self._close_idle() and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._lock:
            for sock in self._open.values():
                _cut(sock)

    def _close_idle(self) -> int:
        """Close idle connections and return how many still process a request."""
        with self._lock:
            for connection, sock in self._open.items():
                if connection.idle:
                    _cut(sock)
            return sum(not connection.idle for connection in self._open)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                log.warning("cannot accept a connection: %s; trying again", error)
                time.sleep(0.1)
                continue
            threading.Thread(
                target=self._serve, args=(sock, address[0]), name="http-connection", daemon=True
            ).start()

    def _serve(self, sock: socket.socket, client: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        patience = struct.pack("ll", _IDLE_S, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        connection = Connection(sock, client=client, app=self._app, base=self._base_environ())
        with self._lock:
            self._open[connection] = sock
        try:
            connection.run()
        finally:
            with self._lock:
                del self._open[connection]
            _cut(sock)
            sock.close()

    def _base_environ(self) -> dict[str, Any]:
        return {
            "SCRIPT_NAME": "",
            "SERVER_NAME": self.host,
            "SERVER_PORT": str(self.port),
            "SERVER_SOFTWARE": "trainyard",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
        }


def _cut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("the client closed first: %s", error)
