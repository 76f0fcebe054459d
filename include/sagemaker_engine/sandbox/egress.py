"""HTTP proxy through which an instance reaches the internet; it runs outside of the instance's network.

On SageMaker a job reaches the internet unless it requests network isolation. For example, pip needs the
internet to install a requirements.txt. An instance's network has no route, so its programs get this
proxy's address in HTTP_PROXY and HTTPS_PROXY. The proxy forwards to this machine's own proxy if one is
configured. It rejects this machine's own addresses, which a host on AWS cannot reach either.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sagemaker_engine.sandbox.relay import pump_both_ways, serve_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

PORT_INSIDE = 3128
MAX_HEAD_BYTES = 65536
CONNECT_TIMEOUT_S = 30.0


class ForbiddenTargetError(ValueError):
    """A program requested an address of the machine that runs the engine."""


def is_of_this_machine(address: str) -> bool:
    """Return whether an IP address is this machine's own, link-local, unspecified or multicast."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    each = mapped or parsed
    if each.is_loopback or each.is_link_local or each.is_unspecified or each.is_multicast:
        return True
    family = socket.AF_INET if each.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # Connecting it sends nothing.
        try:
            probe.connect((str(each), 9))
        except OSError:
            return False  # Without a route it is not an address of this machine.
        # Linux uses an address of this machine as its own source address.
        return str(probe.getsockname()[0]) == str(each)


class EgressProxy:
    """Proxy for instances: it accepts connections in their networks and connects from the machine's network."""

    def __init__(
        self, environment: Mapping[str, str], *, refuses: Callable[[str], bool] = is_of_this_machine
    ) -> None:
        """`environment` may name this machine's own proxy (HTTPS_PROXY, HTTP_PROXY).

        `refuses` returns whether connections to an IP address are rejected.
        """
        self._refuses = refuses
        self._upstream = {
            "https": _upstream_proxy(environment, "https"),
            "http": _upstream_proxy(environment, "http"),
        }

    def serve(self, listener: socket.socket) -> None:
        """Serve this listener in a thread until it is closed."""
        serve_connections(listener, self._answer)

    def _answer(self, inside: socket.socket) -> None:
        with inside:
            try:
                head, rest = _read_head(inside)
                outside = self._connect(head, inside)
            except ForbiddenTargetError as error:
                log.info("no way out: %s", error)
                with contextlib.suppress(OSError):
                    inside.sendall(f"{_FORBIDDEN}{error}\n".encode())
                return
            except (OSError, ValueError) as error:
                log.info("no way out: %s", error)
                with contextlib.suppress(OSError):
                    inside.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n")
                return
            with outside:
                with contextlib.suppress(OSError):  # a closed peer may have answered
                    outside.sendall(rest)
                pump_both_ways(inside, outside)

    def _connect(self, head: bytes, inside: socket.socket) -> socket.socket:
        """Open and return the connection for the request whose `head` came from the socket `inside`.

        Usually the head is sent on the new connection. It is not sent for a tunnel (CONNECT) that does not use this
        machine's own proxy: in that case `inside` gets a response with status 200.

        Raises:
            ForbiddenTargetError: The host is this machine.
            ValueError: The request has no host.
        """
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        if method == "CONNECT":
            return self._tunnel(target, line, fields, inside)
        parts = urlsplit(target)
        if not parts.hostname:
            raise ValueError(f"{target!r} is not an absolute URL")
        upstream = self._upstream["http"]
        if upstream is not None:
            self._check_name(parts.hostname)
            # One request per connection: a second one would be neither checked nor authorized.
            return upstream.connect(
                line, fields, drops=(b"connection:", b"proxy-connection:"), adds=_CLOSE
            )
        outside = self._open(parts.hostname, parts.port or 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        first = f"{method} {path} {version}".encode("ascii")
        outside.sendall(_head(first, fields, drops=(b"connection:", b"proxy-"), adds=_CLOSE))
        return outside

    def _tunnel(
        self, target: str, line: bytes, fields: bytes, inside: socket.socket
    ) -> socket.socket:
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        upstream = self._upstream["https"]
        if upstream is not None:
            self._check_name(host)
            return upstream.connect(line, fields)  # Its response is passed back unchanged.
        outside = self._open(host, int(port))
        inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return outside

    def _open(self, host: str, port: int) -> socket.socket:
        """Connect to the host: try its addresses in order and return the first connection that succeeds.

        Raise ForbiddenTargetError if the next address to try belongs to this machine.
        """
        failure: OSError | None = None
        for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            self._check_address(host, str(address[0]))
            try:
                return socket.create_connection((str(address[0]), port), CONNECT_TIMEOUT_S)
            except OSError as error:
                failure = error
        raise failure or OSError(f"{host} has no address")

    def _check_name(self, host: str) -> None:
        """Check a host before this machine's own proxy connects to it.

        Only IP addresses and names of localhost are checked. All other names are resolved by this machine's own
        proxy.

        Raises:
            ForbiddenTargetError: The host is this machine.
        """
        if host.lower().rstrip(".").endswith("localhost"):
            host = "127.0.0.1"
        with contextlib.suppress(socket.gaierror):  # A name, which this machine's proxy resolves.
            for *_, address in socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST):
                self._check_address(host, str(address[0]))

    def _check_address(self, host: str, address: str) -> None:
        if self._refuses(address):
            target = host if host == address else f"{host} ({address})"
            raise ForbiddenTargetError(
                f"a job cannot connect to {target}: the address belongs to the machine that runs the engine. As on "
                "AWS, a job reaches S3, SageMaker and the internet. Serve the data from another host, or pass it as a "
                "channel."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _UpstreamProxy:
    """This machine's own proxy, and the header field for its user and password if it has them."""

    address: tuple[str, int]
    authorization: bytes = b""

    def connect(
        self, line: bytes, fields: bytes, *, drops: tuple[bytes, ...] = (), adds: bytes = b""
    ) -> socket.socket:
        """Connect to the proxy, send it a request's head with the authorization, and return the connection.

        `drops` are the beginnings of fields to remove from the head, `adds` are fields to add.
        """
        outside = socket.create_connection(self.address, CONNECT_TIMEOUT_S)
        if self.authorization:
            drops = (*drops, b"proxy-authorization:")
        outside.sendall(_head(line, fields, drops=drops, adds=adds + self.authorization))
        return outside


_CLOSE = b"Connection: close\r\n"
_FORBIDDEN = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


def proxy_environment(host_names: list[str]) -> dict[str, str]:
    """Return the variables that make an instance's programs use the proxy, except for local addresses."""
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


def _head(line: bytes, fields: bytes, *, drops: tuple[bytes, ...], adds: bytes) -> bytes:
    """Return the head of a request from its first line and its header fields.

    Fields that begin with one of the texts in `drops` are removed. These texts must be in lower case, but the
    case of the fields is ignored. The fields in `adds` are added.
    """
    kept = [each for each in fields.split(b"\r\n") if not each.lower().startswith(drops)]
    return line + b"\r\n" + adds + b"\r\n".join(kept)


def _upstream_proxy(environment: Mapping[str, str], scheme: str) -> _UpstreamProxy | None:
    name = f"{scheme}_proxy"
    url = environment.get(name) or environment.get(name.upper())
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if not parts.hostname:
        return None
    authorization = b""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        token = base64.b64encode(user.encode())
        authorization = b"Proxy-Authorization: Basic " + token + b"\r\n"
    return _UpstreamProxy(address=(parts.hostname, parts.port or 80), authorization=authorization)
