"""A way out of an instance's network to the world: an HTTP proxy that runs outside of it.

On SageMaker a job reaches the internet unless it asks for network isolation; pip install of a
requirements.txt needs it. An instance's network has no route, so programs get this proxy's address
in HTTP_PROXY and HTTPS_PROXY. It passes on to this machine's own proxy where one is set.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from include.local_engine.sandbox.relay import pump_both_ways, serve_connections

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

PORT_INSIDE = 3128
MAX_HEAD_BYTES = 65536
CONNECT_TIMEOUT_S = 30.0


class EgressProxy:
    """Serves listeners that live in instances' networks and connects from this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` may name this machine's own proxy (HTTPS_PROXY, HTTP_PROXY)."""
        self._upstream = {
            "https": _proxy_address(environment, "https"),
            "http": _proxy_address(environment, "http"),
        }

    def serve(self, listener: socket.socket) -> None:
        """Serve this listener in a thread for as long as it is open."""
        serve_connections(listener, self._answer)

    def _answer(self, inside: socket.socket) -> None:
        with inside:
            try:
                head, rest = _read_head(inside)
                outside = self._connect(head, inside)
            except (OSError, ValueError) as error:
                log.info("no way out: %s", error)
                with contextlib.suppress(OSError):
                    inside.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n")
                return
            with outside:
                outside.sendall(rest)
                pump_both_ways(inside, outside)

    def _connect(self, head: bytes, inside: socket.socket) -> socket.socket:
        """Return the connection that the request asks for, its head sent where that is due.

        Raises:
            ValueError: The request names no host.
        """
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        if method == "CONNECT":
            return self._tunnel(target, head, inside)
        upstream = self._upstream["http"]
        if upstream is not None:
            outside = socket.create_connection(upstream, CONNECT_TIMEOUT_S)
            outside.sendall(head)
            return outside
        parts = urlsplit(target)
        if not parts.hostname:
            raise ValueError(f"{target!r} is no absolute URL")
        outside = socket.create_connection((parts.hostname, parts.port or 80), CONNECT_TIMEOUT_S)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [each for each in fields.split(b"\r\n") if not _is_hop(each)]
        first = f"{method} {path} {version}\r\nConnection: close\r\n".encode("ascii")
        outside.sendall(first + b"\r\n".join(kept))
        return outside

    def _tunnel(self, target: str, head: bytes, inside: socket.socket) -> socket.socket:
        upstream = self._upstream["https"]
        if upstream is not None:
            outside = socket.create_connection(upstream, CONNECT_TIMEOUT_S)
            outside.sendall(head)  # Its answer goes back as it comes.
            return outside
        host, _, port = target.rpartition(":")
        outside = socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S)
        inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return outside


def proxy_environment(host_names: list[str]) -> dict[str, str]:
    """Return the variables that send an instance's programs through the proxy, local ones not."""
    url = f"http://127.0.0.1:{PORT_INSIDE}"
    direct = ",".join(["localhost", "127.0.0.1", "10.77.0.0/16", *host_names])
    values = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": direct}
    return values | {name.lower(): value for name, value in values.items()}


def _read_head(source: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = source.recv(4096)
        if not more or len(data) > MAX_HEAD_BYTES:
            raise ValueError("no HTTP request")
        data += more
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


def _is_hop(field: bytes) -> bool:
    return field.lower().startswith((b"proxy-", b"connection:"))


def _proxy_address(environment: Mapping[str, str], scheme: str) -> tuple[str, int] | None:
    name = f"{scheme}_proxy"
    url = environment.get(name) or environment.get(name.upper())
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None
