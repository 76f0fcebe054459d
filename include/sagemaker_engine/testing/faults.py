"""Faults of a running engine, set over HTTP (docs/faults.md)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def faults(endpoint_url: str, *documents: dict[str, Any]) -> Iterator[None]:
    """Set these faults, and no others, inside the `with` block; docs/faults.md describes the documents.

    Raises:
        ValueError: The engine rejects a document; the message has its reason.
    """
    _send(endpoint_url, "PUT", list(documents))
    try:
        yield
    finally:
        end_faults(endpoint_url)


def end_faults(endpoint_url: str) -> None:
    """Remove all faults.

    Raises:
        ValueError: The engine rejects the request.
    """
    _send(endpoint_url, "DELETE", None)


def times_fired(endpoint_url: str) -> list[int]:
    """Return the number of times that each fault has occurred, in the order in which the faults were set.

    Raises:
        ValueError: The engine rejects the request.
    """
    return [len(each["fired_at"]) for each in _send(endpoint_url, "GET", None)["faults"]]


def _send(endpoint_url: str, method: str, document: Any) -> Any:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(  # noqa: S310  # the engine under test
        f"{endpoint_url}/_engine/faults", data=body, method=method
    )
    try:
        with _DIRECT.open(request, timeout=LIMIT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(f"the engine rejects the faults: {error.read().decode()}") from error
