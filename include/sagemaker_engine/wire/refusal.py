"""Error responses in the protocol of the request: JSON, or XML for the query protocol."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from sagemaker_engine.wire.json_service import answer_error
from sagemaker_engine.wire.scope import is_form

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.wire.errors import ServiceError


def answer_refusal(
    error: ServiceError, environ: WSGIEnvironment, start_response: StartResponse
) -> list[bytes]:
    """Start the error response of a JSON or query service and return its body."""
    if not is_form(environ):
        return answer_error(error, start_response)
    inner = (
        f"<Error><Type>Sender</Type><Code>{escape(error.code)}</Code>"
        f"<Message>{escape(error.message)}</Message></Error>"
    )
    # EC2 clients read the error one element deeper than those of other query services.
    errors = f"{inner}<Errors>{inner}</Errors><RequestId>{uuid.uuid4()}</RequestId>"
    body = f"<ErrorResponse>{errors}</ErrorResponse>".encode()
    headers = [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))]
    start_response(f"{error.status} Error", headers)
    return [body]
