"""Forwarding of a stop request by a host that serves another's steps: one line over TCP.

With parameter servers the coordinator alone decides when a run stops, and a spot notice may reach another host only.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 2225
"""Of the coordinator; below it are those of TensorFlow's servers."""
LINE = b"trainyard stop\n"
LIMIT_S = 5.0


def hear(on_notice: Callable[[], None], *, port: int = PORT) -> int:
    """Call `on_notice`, on a thread, for each notice of another host; return the port, chosen where 0 is given.

    Fails with OSError: the port is taken.
    """
    server = socket.create_server(("", port))
    threading.Thread(target=_take, args=(server, on_notice), daemon=True).start()
    return int(server.getsockname()[1])


def tell(host: str, *, port: int = PORT) -> None:
    """Notify the coordinator; repeat until it is gone, since it may not listen yet."""
    with suppress(OSError), socket.create_connection((host, port), timeout=LIMIT_S) as connection:
        connection.sendall(LINE)


def is_notice(connection: socket.socket) -> bool:
    """Read what is said on a connection; tell whether it is a notice."""
    connection.settimeout(LIMIT_S)
    with suppress(OSError), connection.makefile("rb") as said:
        return said.readline(len(LINE)) == LINE
    return False


def _take(server: socket.socket, on_notice: Callable[[], None]) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            if is_notice(connection):
                on_notice()
