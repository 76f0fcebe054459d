"""TCP contact between the hosts of a run: checks for a running server, and stop notices to the coordinator.

With parameter servers, only the coordinator can stop a run. A spot interruption notice may arrive at
another host only. That host then sends one line to the coordinator.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_PORT = 2225
"""Port of the coordinator's listener; TensorFlow's servers use lower ones."""
STOP_LINE = b"trainyard stop\n"
STOP_TIMEOUT_S = 5.0
POLL_S = 0.1


def is_there(address: str, *, timeout_s: float) -> bool:
    """Return whether `host:port` accepts a connection."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def wait_until_gone(address: str, *, limit_s: float) -> None:
    """Wait until `host:port` accepts no connection, at most `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and is_there(address, timeout_s=POLL_S):
        time.sleep(POLL_S)


def receive_stop_notices(on_notice: Callable[[], None], *, port: int = STOP_PORT) -> int:
    """Call `on_notice`, on a thread, for each notice of another host; return the port (a free one for port 0).

    Raises:
        OSError: the port is in use.
    """
    server = socket.create_server(("", port))
    threading.Thread(target=_receive, args=(server, on_notice), daemon=True).start()
    return int(server.getsockname()[1])


def send_stop_notice(host: str, *, port: int = STOP_PORT) -> None:
    """Send a stop notice to the coordinator, which runs on `host`.

    Errors are ignored, so the caller must repeat the call until the coordinator has ended.
    """
    with (
        suppress(OSError),
        socket.create_connection((host, port), timeout=STOP_TIMEOUT_S) as connection,
    ):
        connection.sendall(STOP_LINE)


def is_stop_notice(connection: socket.socket) -> bool:
    """Read one line from a connection; return whether it is a stop notice."""
    connection.settimeout(STOP_TIMEOUT_S)
    with suppress(OSError), connection.makefile("rb") as stream:
        return stream.readline(len(STOP_LINE)) == STOP_LINE
    return False


def _receive(server: socket.socket, on_notice: Callable[[], None]) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            if is_stop_notice(connection):
                on_notice()
