"""One service of the AWS JSON protocol as a WSGI application."""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sagemaker_engine.wire.errors import (
    SerializationError,
    ServiceError,
    UnknownOperationError,
)
from sagemaker_engine.wire.scope import region_of, service_of
from sagemaker_engine.wire.validation import validate

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from sagemaker_engine.wire.model import ServiceModel

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 << 20


class NotOursError(Exception):
    """Raised by a handler that does not answer a call. `JsonService` passes the call to its application `behind`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One validated call: its operation, request members and region."""

    operation: str
    request: dict[str, Any]
    region: str
    forward: Callable[[], dict[str, Any]]
    """Sends the call to the application behind the service and returns its response, to be extended."""


Handler = Callable[[Call], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonService:
    """Calls the operation's handler; operations without one go to the application `behind`.

    `rejected` maps each unsupported operation to the reason. If `behind` is None, an operation without a handler is
    rejected, too.
    """

    model: ServiceModel
    handlers: Mapping[str, Handler]
    default_region: str
    behind: WSGIApplication | None = None
    rejected: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        operation = environ["HTTP_X_AMZ_TARGET"].partition(".")[2]
        try:
            return self._answer(operation, read_body(environ), environ, start_response)
        except ServiceError as error:
            return answer_error(error, start_response)

    def _answer(
        self, operation: str, body: bytes, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        if operation not in self.model.operations:
            raise UnknownOperationError(
                operation, reason=f"botocore's model of {self.model.name} has no such operation"
            )
        if operation in self.rejected:
            raise UnknownOperationError(operation, reason=self.rejected[operation])
        handler = self.handlers.get(operation)
        behind, passed_on = self.behind or _nobody, self._passed_on(environ)
        if handler is None:
            return behind(passed_on, start_response)
        try:
            request = _parse(body)
            validate(self.model, operation, request)
        except RecursionError as error:
            raise SerializationError("The body is nested too deeply.") from error
        call = Call(
            operation=operation,
            request={key: value for key, value in request.items() if value is not None},
            region=region_of(environ) or self.default_region,
            forward=lambda: _call_behind(behind, passed_on),
        )
        try:
            answer = handler(call)
        except NotOursError:
            return behind(passed_on, start_response)
        return answer_json("200 OK", _shaped(self.model, operation, answer), start_response)

    def _passed_on(self, environ: WSGIEnvironment) -> WSGIEnvironment:
        """Return the request for the application `behind`; a signed request is unchanged.

        That application routes by the service and region in the signature. An unsigned request therefore gets
        a signature that names this service and the default region.
        """
        if service_of(environ) is not None:
            return environ
        scope = f"19700101/{self.default_region}/{self.model.name}/aws4_request"
        signature = f"AWS4-HMAC-SHA256 Credential=unsigned/{scope}"
        return {**environ, "HTTP_AUTHORIZATION": signature}


def _shaped(model: ServiceModel, operation: str, answer: dict[str, Any]) -> dict[str, Any] | None:
    """Return the members of `answer` that are in the operation's output shape; None if it has no output.

    Null values are omitted. Timestamps are epoch seconds, rounded to milliseconds as the service does.
    """
    output = model.output_shape(operation)
    return None if output is None else _member(model, output, answer)


def _member(model: ServiceModel, shape_name: str, value: Any) -> Any:
    shape = model.shapes[shape_name]
    match shape["type"]:
        case "structure":
            members = shape["members"]
            return {
                name: _member(model, members[name]["shape"], item)
                for name, item in value.items()
                if item is not None and name in members
            }
        case "list":
            return [_member(model, shape["member"]["shape"], item) for item in value]
        case "map":
            return {key: _member(model, shape["value"]["shape"], v) for key, v in value.items()}
        case "timestamp":
            return round(float(value), 3)
        case _:
            return value


def answer_json(
    status: str,
    document: dict[str, Any] | None,
    start_response: StartResponse,
    *,
    headers: Iterable[tuple[str, str]] = (),
) -> list[bytes]:
    """Start a JSON response (an empty one if `document` is None) and return its body."""
    body = b"" if document is None else json.dumps(document).encode()
    start_response(
        status,
        [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Content-Length", str(len(body))),
            ("x-amzn-RequestId", str(uuid.uuid4())),
            *headers,
        ],
    )
    return [body]


def answer_error(error: ServiceError, start_response: StartResponse) -> list[bytes]:
    """Start an error response and return its body."""
    reason = {
        400: "Bad Request",
        403: "Forbidden",
        500: "Internal Server Error",
        501: "Not Implemented",
    }
    status = f"{error.status} {reason.get(error.status, 'Error')}"
    document = {"__type": error.code, "message": error.message}
    headers = [("x-amzn-ErrorType", error.code)]
    return answer_json(status, document, start_response, headers=headers)


def read_body(environ: WSGIEnvironment) -> bytes:
    """Return the whole request body. The body can be read again afterwards.

    Raises:
        ServiceError: The body is larger than 32 MiB (status 413).
    """
    length, body = environ.get("CONTENT_LENGTH"), b""
    if length or environ.get("wsgi.input_terminated"):
        most = MAX_BODY_BYTES + 1  # One byte more, to see that a body is too large.
        body = environ["wsgi.input"].read(min(int(length or most), most))
    if len(body) > MAX_BODY_BYTES:
        raise ServiceError("RequestEntityTooLargeException", "Request is too large.", status=413)
    environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
    return body


def _parse(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body or b"{}", parse_constant=_no_constant)
        json.dumps(
            request, ensure_ascii=False
        ).encode()  # Fails at an unpaired surrogate, which UTF-8 cannot represent.
    except ValueError as error:
        raise SerializationError(f"The body is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise SerializationError("The body is not a JSON object.")
    return request


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _nobody(environ: WSGIEnvironment, _: StartResponse) -> list[bytes]:
    operation = environ["HTTP_X_AMZ_TARGET"].partition(".")[2]
    raise UnknownOperationError(operation, reason="no service handles it")


def _call_behind(app: WSGIApplication, environ: WSGIEnvironment) -> dict[str, Any]:
    statuses: list[str] = []

    def note(status: str, _headers: list[tuple[str, str]], _error: Any = None) -> Any:
        statuses.append(status)

    body = b"".join(app(environ, note))
    document: dict[str, Any] = json.loads(body or b"{}")
    if not statuses[0].startswith("2"):
        code, message = str(document.get("__type", "InternalFailure")), document.get("message", "")
        raise ServiceError(code, str(message), status=int(statuses[0][:3]))
    return document
