"""S3 as a WSGI application: parses a request, runs its action and returns the response."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sagemaker_engine.http.body import FileBody
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.fault import HalfBody, S3FaultFinder, no_fault
from sagemaker_engine.s3.request import read_request
from sagemaker_engine.s3.responses import Response, error_response, iso_time
from sagemaker_engine.s3.routes import find_action, operation_of
from sagemaker_engine.state.full_disk import is_disk_full

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.request import S3Request

log = logging.getLogger(__name__)

_PRESIGNED_DATE = "%Y%m%dT%H%M%SZ"


class S3Application:
    """Serves `store`. Any credentials are accepted and no signature is checked.

    Both path-style and virtual-host addresses (``bucket.s3.<anything>``, ``bucket.localhost``) are
    supported. The constructor runs `ObjectStore.recover`, which removes the files of killed processes.
    `find_fault` returns the fault that applies to a request, or None.
    """

    def __init__(self, store: ObjectStore, *, find_fault: S3FaultFinder = no_fault) -> None:
        self._store = store
        self._find_fault = find_fault
        store.recover()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        request_id = secrets.token_hex(8).upper()
        response = self._answer(environ, request_id)
        start_response(
            response.status_line,
            [
                ("x-amz-request-id", request_id),
                ("x-amz-id-2", request_id),
                ("Server", "AmazonS3"),
                *response.headers.items(),
            ],
        )
        return [response.body] if isinstance(response.body, bytes) else response.body

    def _answer(self, environ: WSGIEnvironment, request_id: str) -> Response:
        try:
            request = read_request(environ)
            _check_expiry(request.query, now=self._store.clock())
            return self._act(request)
        except S3Error as error:
            refusal = error
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("%s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            refusal = self._no_space() if is_disk_full(error) else S3Error("InternalError")
        resource = str(environ["PATH_INFO"]).encode("latin-1").decode(errors="replace")
        return error_response(refusal, resource=resource, request_id=request_id)

    def _no_space(self) -> S3Error:
        return S3Error(
            "InsufficientStorage",
            f"No space is left on the disk that holds {self._store.root}. Nothing was stored. Delete objects, or free "
            "space on that disk.",
        )

    def _act(self, request: S3Request) -> Response:
        action = find_action(request)
        key = request.key or request.query.get("prefix", "")
        s3_fault = self._find_fault(operation_of(request, action), request.bucket, key)
        if s3_fault is None:
            return action(self._store, request)
        time.sleep(s3_fault.stall_s)
        if s3_fault.error is not None:
            raise s3_fault.error
        response = action(self._store, request)
        if s3_fault.halves and isinstance(response.body, FileBody):
            return replace(response, body=HalfBody(response.body))
        return response


def _check_expiry(query: Mapping[str, str], *, now: float) -> None:
    """Reject a presigned request after its expiry; `now` is in epoch seconds. The signature is not checked.

    Raises:
        S3Error: AccessDenied, if the request has expired, or if its expiry is missing or cannot be parsed.
    """
    ends_at = _ends_at(query)
    if ends_at is not None and now > ends_at:
        raise S3Error(
            "AccessDenied",
            "Request has expired",
            Expires=iso_time(ends_at),
            ServerTime=iso_time(now),
        )


def _ends_at(query: Mapping[str, str]) -> float | None:
    try:
        if "X-Amz-Signature" in query:
            began = datetime.strptime(query["X-Amz-Date"], _PRESIGNED_DATE).replace(tzinfo=UTC)
            return began.timestamp() + int(query["X-Amz-Expires"])
        if "Signature" in query and "AWSAccessKeyId" in query:
            return float(query["Expires"])
    except (KeyError, ValueError) as error:
        raise S3Error("AccessDenied", "The presigned URL has no valid date and expiry") from error
    return None
