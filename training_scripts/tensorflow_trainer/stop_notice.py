"""Stop notice from a worker to the coordinator: one line over TCP.

With parameter servers only the coordinator can stop a run, but a spot interruption notice may reach only another host.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 2225
"""Port of the coordinator's listener; TensorFlow's servers use lower ones."""
LINE = b"trainyard stop\n"
LIMIT_S = 5.0


def hear(on_notice: Callable[[], None], *, port: int = PORT) -> int:
    """Call `on_notice`, on a thread, for each notice of another host; return the port (a free one if 0 is given).

    Raises:
        OSError: the port is in use.
    """
    server = socket.create_server(("", port))
    threading.Thread(target=_take, args=(server, on_notice), daemon=True).start()
    return int(server.getsockname()[1])


def tell(host: str, *, port: int = PORT) -> None:
    """Notify the coordinator. Errors are ignored, so the caller must repeat it until the coordinator has ended."""
    with suppress(OSError), socket.create_connection((host, port), timeout=LIMIT_S) as connection:
        connection.sendall(LINE)


def is_notice(connection: socket.socket) -> bool:
    """Read one line from a connection; return whether it is a stop notice."""
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
