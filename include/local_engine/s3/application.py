"""S3 as a WSGI application: finds the action a request asks for and renders what comes of it."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from include.local_engine.s3.errors import S3Error
from include.local_engine.s3.presigned import check_expiry
from include.local_engine.s3.request import read_request
from include.local_engine.s3.responses import Response, error_response
from include.local_engine.s3.routes import find_action

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from include.local_engine.s3.object_store import ObjectStore

log = logging.getLogger(__name__)


class S3Application:
    """Serves `store`. Any credentials are accepted and no signature is checked.

    Path-style addresses and virtual-host ones (``bucket.s3.<anything>``, ``bucket.localhost``) work
    side by side. What killed processes left in the store is swept away here, at the start.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
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
            check_expiry(request.query, now=self._store.clock())
            return find_action(request)(self._store, request)
        except S3Error as error:
            refusal = error
        except ConnectionError:
            raise
        except Exception:
            log.exception("%s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            refusal = S3Error("InternalError")
        resource = str(environ["PATH_INFO"]).encode("latin-1").decode(errors="replace")
        return error_response(refusal, resource=resource, request_id=request_id)
