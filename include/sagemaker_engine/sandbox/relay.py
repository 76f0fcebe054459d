"""Relay from an instance's network to the engine: it forwards connections to the engine's real address."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18


class Relay:
    """Relay from instances' networks to the engine.

    For each connection that an instance opens to the relay, the relay opens one to the engine from the
    machine's network.
    """

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        """`target` returns the address to connect to; it is called per connection, since an engine may restart."""
        self._target = target

    def serve(self, listener: socket.socket) -> None:
        """Serve this listener in a thread until it is closed."""
        serve_connections(listener, self._connect)

    def _connect(self, inside: socket.socket) -> None:
        try:
            outside = socket.create_connection(self._target(), timeout=10)
        except OSError as error:
            log.warning("the engine is not reached: %s", error)
            inside.close()
            return
        with inside, outside:
            pump_both_ways(inside, outside)


def serve_connections(listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    """Accept connections in a new thread, which ends when the listener is closed; answer each in its own thread."""

    def accept() -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(inside,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def pump_both_ways(inside: socket.socket, outside: socket.socket) -> None:
    """Copy bytes between two connections in both directions until both sides have ended."""
    outside.settimeout(None)
    for each in (inside, outside):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
    back.start()
    _pump(inside, outside)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    buffer = memoryview(bytearray(CHUNK_BYTES))
    try:
        while size := source.recv_into(buffer):
            target.sendall(buffer[:size])
    except OSError:
        pass  # One side disconnected; the other side notices it by the shutdown below.
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
