"""A way out of an instance's network: its connections to the engine, pumped to the real one."""

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
    """Accepts on listeners that live in other network namespaces and connects from this one."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        """`target` returns the address to connect to; asked anew each time, since an engine may restart."""
        self._target = target

    def serve(self, listener: socket.socket) -> None:
        """Serve this listener in a thread for as long as it is open."""
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
    """Answer each connection in a thread of its own, from a thread that ends with the listener."""

    def accept() -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(inside,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def pump_both_ways(inside: socket.socket, outside: socket.socket) -> None:
    """Pass bytes between two connections until both sides have said their last."""
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
        pass  # One side broke off; the other learns it from the shutdown below.
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
