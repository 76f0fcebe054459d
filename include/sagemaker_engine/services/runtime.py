"""SageMaker services that identify an operation by HTTP method and path, such as SageMaker Runtime.

The engine rejects every operation of these services, for example InvokeEndpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.coverage import refusals
from sagemaker_engine.wire.errors import UnknownOperationError
from sagemaker_engine.wire.json_service import answer_error, read_body
from sagemaker_engine.wire.model import models_signed_as

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


@dataclass(frozen=True, slots=True)
class RuntimeServices:
    """A WSGI application that rejects every request. The error explains why the engine lacks the operation.

    The application gets the requests that are signed as `signing_name` and have no X-Amz-Target header.
    """

    signing_name: str

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request with the reason for which its operation is rejected."""
        read_body(environ)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        operation, reason = self._asked(method, path)
        return answer_error(UnknownOperationError(operation, reason=reason), start_response)

    def _asked(self, method: str, path: str) -> tuple[str, str]:
        for model in models_signed_as(self.signing_name):
            for operation, shape in model.operations.items():
                http = shape["http"]
                if http["method"] == method and _pattern(http["requestUri"]).fullmatch(path):
                    return operation, refusals(model.name)[operation]
        return f"{method} {path}", f"no service that is signed as {self.signing_name} has it"


def _pattern(uri: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(uri.partition("?")[0])))
