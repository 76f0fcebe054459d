"""Responses to denied requests, in the wording of the addressed service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.responses import error_response
from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.refusal import answer_refusal
from sagemaker_engine.wire.scope import is_form

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


def answer_denied(
    message: str,
    environ: WSGIEnvironment,
    start_response: StartResponse,
    *,
    is_s3: bool,
    status: int = 403,
) -> list[bytes]:
    """Start the response and return its body. `status` does not apply to S3, which always responds with 403."""
    if not is_s3:
        code = "AccessDenied" if is_form(environ) else "AccessDeniedException"
        error = ServiceError(code, message, status=status)
        return answer_refusal(error, environ, start_response)
    resource = str(environ["PATH_INFO"]).encode("latin-1").decode(errors="replace")
    response = error_response(S3Error("AccessDenied", message), resource=resource, request_id="0")
    start_response(response.status_line, list(response.headers.items()))
    return [response.body] if isinstance(response.body, bytes) else list(response.body)
