"""Gateway of the engine's port: routes each request to the service that it addresses, or to a route of the engine."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.http.denial import answer_denied
from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.json_service import answer_error, answer_json, read_body
from sagemaker_engine.wire.scope import is_form, service_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from sagemaker_engine.http.host_names import HostNames

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Routes by `X-Amz-Target`, then by the service of the signature.

    `by_target` maps target prefixes (`SageMaker`) to applications. `by_scope` maps signing names to applications.
    Requests signed for S3 go to S3. Requests signed for a service that is not in `by_scope` go to moto. Unsigned
    requests go to moto if they have an unknown target or use the query or Smithy protocol, and otherwise to S3.
    """

    by_target: Mapping[str, WSGIApplication]
    by_scope: Mapping[str, WSGIApplication]
    s3: WSGIApplication
    moto: WSGIApplication
    own: Mapping[str, ControlRoute]
    """Routes of the engine itself by path, such as /_engine/faults."""
    refusers: Sequence[Callable[[WSGIEnvironment, StartResponse], list[bytes] | None]]
    """Functions that may reject a request, for a missing permission or a fault: each returns the body, or None."""
    hosts: HostNames
    """Names by which requests may address the engine."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request. If a service of the engine fails, the response is a JSON error, never an HTML page."""
        host = environ.get("HTTP_HOST", "")
        if not self.hosts.allows(host):
            return self._refuse_host(host, environ, start_response)
        started = time.perf_counter()
        try:
            if environ["PATH_INFO"].startswith("/_engine/"):
                return self._answer_engine(environ, start_response)
            for refuse in self.refusers:
                refusal = refuse(environ, start_response)
                if refusal is not None:
                    return refusal
            return self._route(environ)(environ, start_response)
        except ServiceError as error:
            return answer_error(error, start_response)
        except Exception as error:
            if isinstance(error, ConnectionError):
                raise  # The client has disconnected; the server closes the connection.
            log.exception("%s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            failure = ServiceError(
                "InternalFailure",
                f"The engine failed: {error!r}; its log has the details",
                status=500,
            )
            return answer_error(failure, start_response)
        finally:
            log.debug(
                "%s %s %s %.1f ms",
                environ["REQUEST_METHOD"],
                environ["PATH_INFO"],
                environ.get("HTTP_X_AMZ_TARGET", ""),
                (time.perf_counter() - started) * 1000,
            )

    def _refuse_host(
        self, host: str, environ: WSGIEnvironment, start_response: StartResponse
    ) -> list[bytes]:
        log.warning("refused a request with the Host %r", host)
        is_s3 = self._route(environ) is self.s3
        return answer_denied(self.hosts.explain(host), environ, start_response, is_s3=is_s3)

    def _answer_engine(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/_engine/health":
            return answer_json("200 OK", {"status": "ok"}, start_response)
        if path in self.own:
            return self.own[path](environ, start_response)
        message = f"there is no route {path}; the routes are /_engine/health, {', '.join(self.own)}"
        return answer_json("404 Not Found", {"message": message}, start_response)

    def _route(self, environ: WSGIEnvironment) -> WSGIApplication:
        target = environ.get("HTTP_X_AMZ_TARGET")
        known = self.by_target.get(target.partition(".")[0]) if target else None
        if known is not None:
            return known
        service = service_of(environ)
        if service in {"s3", "s3express"}:
            return self.s3
        if service is not None:
            return self.by_scope.get(service, self.moto)
        return self.moto if target or _is_unsigned_call(environ) else self.s3


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRoute:
    """A route of the engine itself: PUT applies a JSON document, GET returns the state, DELETE restores the default.

    Attributes:
        put: Applies the document. Raises ValueError if it is invalid.
        delete: Restores the default.
        get: Returns the current document, and the engine's records about it.
    """

    put: Callable[[Any], None]
    delete: Callable[[], None]
    get: Callable[[], Mapping[str, Any]]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer one request with the resulting document; an invalid document gets status 400."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        try:
            if method == "PUT":
                self.put(_document(environ))
            elif method == "DELETE":
                self.delete()
            elif method != "GET":
                message = f"{method} is not supported by {path}; use PUT, GET or DELETE"
                return answer_json("405 Method Not Allowed", {"message": message}, start_response)
        except ValueError as error:
            return answer_json("400 Bad Request", {"message": str(error)}, start_response)
        return answer_json("200 OK", dict(self.get()), start_response)


def _document(environ: WSGIEnvironment) -> Any:
    try:
        return json.loads(read_body(environ) or b"null")
    except ValueError as error:
        raise ValueError(f"{environ['PATH_INFO']}: the body is not JSON: {error}") from error


def _is_unsigned_call(environ: WSGIEnvironment) -> bool:
    """Return whether a request, known to be unsigned, calls a service other than S3."""
    return is_form(environ) or "HTTP_SMITHY_PROTOCOL" in environ
