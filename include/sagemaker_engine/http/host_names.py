"""Names by which requests may address the engine.

A web page can bind its own name to 127.0.0.1 (DNS rebinding): the browser then takes the engine, which runs code, for
the page's own server. Its requests still carry the page's name in the Host header, which no script can change.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

_ALWAYS = ("localhost", "amazonaws.com")
"""Names that nobody else can bind: RFC 6761 reserves the first, Amazon owns the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNames:
    """The Host headers that an engine answers.

    These are loopback names and addresses, the address `bound` (any if it is 0.0.0.0 or ::), the names `allowed`,
    and every name below one of those names: S3 clients put the bucket before it (`data.s3.engine`, `data.localhost`).
    """

    bound: str
    allowed: tuple[str, ...] = ()

    def allows(self, header: str) -> bool:
        """Return whether a request with this Host header is answered; no browser sends an empty one."""
        name = _host_of(header)
        if not name:
            return not header
        address = _address(name)
        if address is not None:
            bound = _address(self.bound)
            any_address = bound is not None and bound.is_unspecified
            return address.is_loopback or address == bound or any_address
        known = {*_ALWAYS, *(each.lower() for each in (self.bound, *self.allowed))}
        return any(name == each or name.endswith(f".{each}") for each in known)

    def explain(self, header: str) -> str:
        """Return what a user can do about a header that is not allowed."""
        return (
            f"The engine does not answer to the Host {header!r}: it answers to localhost, loopback addresses, "
            f"{', '.join((self.bound, *self.allowed))} and names below them: no web page reaches it under a name "
            f"of its own. If the name is yours, start the engine with --allowed-host {_host_of(header) or 'NAME'}."
        )


def _host_of(header: str) -> str:
    """Return the host of a header in lower case, without port, brackets and the root's dot."""
    if header.startswith("["):
        host, bracket, _ = header[1:].partition("]")
        return host.lower() if bracket else ""
    return header.partition(":")[0].lower().removesuffix(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
