"""Scope of a request's signature: its service and region."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

_HEADER = re.compile(r"Credential=[^/,\s]+/\d{8}/([^/,\s]*)/([^/,\s]*)/aws4_request")
_QUERY = re.compile(r"X-Amz-Credential=[^&]+?(?:/|%2F)\d{8}(?:/|%2F)([^/%&]*)(?:/|%2F)([^/%&]*)")


def region_of(environ: WSGIEnvironment) -> str | None:
    """Return the region in the request's signature, or None if the request is not signed."""
    scope = _scope(environ)
    return scope[0] if scope else None


def service_of(environ: WSGIEnvironment) -> str | None:
    """Return the service's signing name in lower case, or None if the request is not signed."""
    scope = _scope(environ)
    return scope[1].lower() if scope else None


def is_form(environ: WSGIEnvironment) -> bool:
    """Return whether the request uses the query protocol, whose responses are XML."""
    content_type: str = environ.get("CONTENT_TYPE", "")
    return content_type.startswith("application/x-www-form-urlencoded")


def _scope(environ: WSGIEnvironment) -> tuple[str, str] | None:
    header = environ.get("HTTP_AUTHORIZATION")
    found = _HEADER.search(header) if header else _QUERY.search(environ.get("QUERY_STRING", ""))
    return (found[1], found[2]) if found else None
