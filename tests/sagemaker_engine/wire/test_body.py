"""The body of a request: whole, or refused."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.json_service import MAX_BODY_BYTES, read_body

CHUNKED = {"wsgi.input_terminated": True}


def environ(num_bytes: int, members: dict[str, Any]) -> Any:
    return {**members, "wsgi.input": io.BytesIO(bytes(num_bytes))}


@pytest.mark.parametrize("members", [CHUNKED, {"CONTENT_LENGTH": str(MAX_BODY_BYTES)}])
def test_a_body_of_the_largest_size_is_read_whole(members: dict[str, Any]) -> None:
    assert len(read_body(environ(MAX_BODY_BYTES, members))) == MAX_BODY_BYTES


@pytest.mark.parametrize("members", [CHUNKED, {"CONTENT_LENGTH": str(MAX_BODY_BYTES + 9)}])
def test_a_larger_body_is_refused_and_not_cut(members: dict[str, Any]) -> None:
    with pytest.raises(ServiceError, match="RequestEntityTooLargeException"):
        read_body(environ(MAX_BODY_BYTES + 9, members))


def test_a_request_without_a_body_has_none() -> None:
    assert read_body(environ(5, {})) == b""
