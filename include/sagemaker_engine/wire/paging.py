"""NextToken of paginated lists: opaque to the client and valid only for the query that produced it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PAGE = 10
"""Number of items in a page of most operations, without MaxResults."""
T = TypeVar("T")
_NOT_THE_QUERY = frozenset({"NextToken", "MaxResults"})


def page_of(
    items: Sequence[T], request: dict[str, Any], *, default: int = DEFAULT_PAGE
) -> tuple[Sequence[T], str | None]:
    """Return the requested page of items, and the token of the next page; None after the last page.

    Raises:
        ValidationError: The token is malformed or belongs to another query.
    """
    start = read_token(request) or 0
    end = start + request.get("MaxResults", default)
    return items[start:end], make_token(request, end) if end < len(items) else None


def make_token(request: dict[str, Any], position: Any) -> str:
    """Return the token with which the query of `request` continues after `position` (a JSON value)."""
    text = json.dumps([_fingerprint(request), position])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(request: dict[str, Any]) -> Any:
    """Return the position in the request's NextToken, or None if the request has no token.

    Raises:
        ValidationError: The token is malformed or belongs to another query.
    """
    token = request.get("NextToken")
    if token is None:
        return None
    try:
        fingerprint, position = json.loads(
            base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        )
    except (ValueError, TypeError) as error:
        raise ValidationError(f"Invalid NextToken: {token}") from error
    if fingerprint != _fingerprint(request):
        raise ValidationError(
            "The NextToken belongs to a request with other parameters; repeat that request's parameters, "
            "or leave NextToken out."
        )
    return position


def _fingerprint(request: dict[str, Any]) -> str:
    query = {key: value for key, value in request.items() if key not in _NOT_THE_QUERY}
    return hashlib.sha256(json.dumps(query, sort_keys=True).encode()).hexdigest()[:16]
