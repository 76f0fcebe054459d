"""Host names that the engine accepts in the Host header of a request. Other names are rejected.

The reason is DNS rebinding: a web page can bind its own name to 127.0.0.1. A browser then treats the engine, which
runs code, as the page's own server. Requests by the page still have its name in the Host header, which no script
can change.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

_ALWAYS = ("localhost", "amazonaws.com")
"""Names that nobody else can bind: RFC 6761 reserves localhost, Amazon owns amazonaws.com."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNames:
    """The Host headers that an engine accepts.

    Accepted are localhost, amazonaws.com, loopback addresses, the address `bound` (any address if it is 0.0.0.0 or ::),
    the names `allowed`, and every name below one of these names: S3 clients prepend the bucket (`data.s3.engine`,
    `data.localhost`).
    """

    bound: str
    allowed: tuple[str, ...] = ()

    def allows(self, header: str) -> bool:
        """Return whether this Host header is accepted. An empty header is accepted, because browsers never send one."""
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
        """Return the error text for a rejected Host header, with the remedy."""
        return (
            f"The engine rejects the Host {header!r}. It accepts localhost, amazonaws.com, loopback addresses, "
            f"{', '.join((self.bound, *self.allowed))} and names below them. It rejects other names because "
            "a web page could reach it by the page's own name. If you trust this name, start the engine with "
            f"--allowed-host {_host_of(header) or 'NAME'}."
        )


def _host_of(header: str) -> str:
    """Return the host of a header in lower case, without port, brackets and trailing dot."""
    if header.startswith("["):
        host, bracket, _ = header[1:].partition("]")
        return host.lower() if bracket else ""
    return header.partition(":")[0].lower().removesuffix(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
