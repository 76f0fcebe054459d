"""HTTP responses: status, headers, and a body of bytes or of a range of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.http.body import FileBody
    from sagemaker_engine.s3.errors import S3Error
    from sagemaker_engine.s3.fault import HalfBody

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_PROLOGUE = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPECIAL = re.compile(r"[&<>\x00-\x08\x0b-\x1f]")
_CONTROL = {chr(n): f"&#x{n:x};" for n in (*range(9), 11, 12, *range(14, 32))} | {"\r": "&#13;"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One HTTP response."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | FileBody | HalfBody = b""

    @property
    def status_line(self) -> str:
        """The status line for WSGI, such as ``404 Not Found``."""
        return f"{self.status} {HTTPStatus(self.status).phrase}"


def text(name: str, value: object) -> str:
    """Return one XML element with escaped text; control characters become character references."""
    content = str(value)
    if _SPECIAL.search(content):
        content = escape(content, _CONTROL)
    return f"<{name}>{content}</{name}>"


def group(name: str, *children: str) -> str:
    """Return one XML element that contains `children`."""
    return f"<{name}>{''.join(children)}</{name}>"


def xml(name: str, *children: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a 200 response with an XML document whose root is `name`, in S3's namespace."""
    document = f'{_PROLOGUE}<{name} xmlns="{NAMESPACE}">{"".join(children)}</{name}>'
    return Response(
        headers={"Content-Type": "application/xml", **(headers or {})}, body=document.encode()
    )


def error_response(error: S3Error, *, resource: str, request_id: str) -> Response:
    """Return the error response that S3 sends; NotModified has only an ETag header."""
    document = _PROLOGUE + group(
        "Error",
        text("Code", error.code),
        text("Message", error.message),
        *(text(name, value) for name, value in error.elements.items()),
        text("Resource", resource),
        text("RequestId", request_id),
    )
    headers = {"Content-Type": "application/xml"}
    if error.code == "NotModified":
        headers = {"ETag": f'"{error.elements["ETag"]}"'}
    return Response(status=error.status, headers=headers, body=document.encode())


def iso_time(epoch_s: float) -> str:
    """Return a time as S3's documents write it. Example: 0 -> 1970-01-01T00:00:00.000Z."""
    return f"{datetime.fromtimestamp(int(epoch_s), tz=UTC):%Y-%m-%dT%H:%M:%S}.000Z"


def http_time(epoch_s: float) -> str:
    """Return a time as HTTP headers write it. Example: 0 -> Thu, 01 Jan 1970 00:00:00 GMT."""
    return formatdate(int(epoch_s), usegmt=True)
