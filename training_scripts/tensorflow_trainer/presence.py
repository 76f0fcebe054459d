"""Reachability of another host's server."""

from __future__ import annotations

import socket
import threading
import time

LOOK_S = 0.1


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
    while time.monotonic() < end and is_there(address, timeout_s=LOOK_S):
        threading.Event().wait(LOOK_S)
