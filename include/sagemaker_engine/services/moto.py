"""moto, run in this process for the AWS requests that the engine does not answer itself.

Requests that are signed for a service outside `coverage.OTHER_SERVICES` are rejected. The first request
that needs moto imports it, which takes over a second. moto's state is in memory and is lost when the
process ends.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from sagemaker_engine.coverage import OTHER_SERVICES
from sagemaker_engine.wire.errors import ServiceError, UnknownOperationError
from sagemaker_engine.wire.json_service import read_body
from sagemaker_engine.wire.refusal import answer_refusal
from sagemaker_engine.wire.scope import service_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from sagemaker_engine.state.settings import EngineSettings

log = logging.getLogger(__name__)

_TRUST_SAGEMAKER = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}

_NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


class MotoBackend:
    """A WSGI application in front of moto that never answers with an HTML page."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._app: WSGIApplication | None = None
        self._used: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request. If moto lacks the operation, the response is an error in the service's protocol."""
        name = _operation_name(environ)
        if environ["PATH_INFO"].startswith("/moto-api"):
            closed = ServiceError(
                "AccessDenied",
                "moto's own API (/moto-api) is not available in the engine",
                status=403,
            )
            return answer_refusal(closed, environ, start_response)
        service = service_of(environ)
        if service is not None and service not in OTHER_SERVICES:
            absent = UnknownOperationError(
                f"{name} (service {service})", reason="the engine has no such service"
            )
            return answer_refusal(absent, environ, start_response)
        self._used.add(service or "")
        caught = _CaughtResponse()
        try:
            body = b"".join(self._load()(environ, caught))
        except NotImplementedError:
            return answer_refusal(
                UnknownOperationError(name, reason="moto does not implement it"),
                environ,
                start_response,
            )
        except Exception as error:  # moto may raise any exception; the client needs a response.
            log.exception("moto failed in %s", name)
            failure = ServiceError("InternalFailure", f"{name} failed: {error!r}", status=500)
            return answer_refusal(failure, environ, start_response)
        if caught.is_html:
            unknown = UnknownOperationError(name, reason=f"moto answered {caught.status}")
            return answer_refusal(unknown, environ, start_response)
        start_response(caught.status, caught.headers)
        return [body]

    def was_used(self, service: str) -> bool:
        """Return whether a client has called this service (a signing name) since the start."""
        return service in self._used

    def role_trust(self, role_name: str) -> str | None:
        """Return the trust policy of a role as JSON, or None if the role does not exist."""
        if self._settings.default_role_arn.endswith(f"/{role_name}") and self._app is None:
            return json.dumps(_TRUST_SAGEMAKER)
        backend = self._backend("iam", "aws")
        from moto.iam.exceptions import NotFoundException  # noqa: PLC0415  # Slow to import.

        try:
            return str(backend.get_role(role_name).assume_role_policy_document)
        except NotFoundException:
            return None

    def put_metrics(self, region: str, namespace: str, metrics: list[dict[str, Any]]) -> None:
        """Add metric data, in the form of PutMetricData, to CloudWatch."""
        self._backend("cloudwatch", region).put_metric_data(namespace, metrics)

    def put_event(self, region: str, event: dict[str, Any]) -> None:
        """Put one event, in the form of PutEvents, on EventBridge's default bus."""
        self._backend("events", region).put_events([event])

    def _backend(self, service: str, region: str) -> Any:
        self._load()
        from moto.backends import get_backend  # noqa: PLC0415  # Slow to import.

        backends: Any = get_backend(service)  # type: ignore[call-overload]
        return backends[self._settings.account][region]

    def _load(self) -> WSGIApplication:
        with self._lock:
            if self._app is None:
                self._app = self._start()
            return self._app

    def _start(self) -> WSGIApplication:
        os.environ["MOTO_ACCOUNT_ID"] = self._settings.account  # moto reads it on import.
        from moto.iam.models import iam_backends  # noqa: PLC0415
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415  # Slow to import.
            DomainDispatcherApplication,
            create_backend_app,
        )

        role_name = self._settings.default_role_arn.rpartition("/")[2]
        iam_backends[self._settings.account]["aws"].create_role(
            role_name=role_name,
            assume_role_policy_document=json.dumps(_TRUST_SAGEMAKER),
            path="/",
            permissions_boundary=None,
            description="Execution role that the local engine makes at start",
            tags=[],
            max_session_duration="3600",
        )
        app: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        return app


class _CaughtResponse:
    """A `start_response` that stores its arguments."""

    status = "500 Internal Server Error"

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []

    def __call__(self, status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        self.status, self.headers = status, headers

    @property
    def is_html(self) -> bool:
        types = [value for name, value in self.headers if name.lower() == "content-type"]
        return self.status[0] in "45" and any("text/html" in value for value in types)


def _operation_name(environ: WSGIEnvironment) -> str:
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return str(target.partition(".")[2])
    return f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')} of {service_of(environ)}"


@dataclass(frozen=True, slots=True)
class IamApplication:
    """moto's IAM, and the operation SimulatePrincipalPolicy, which allows everything.

    The SageMaker SDK calls this operation for every trainer.
    """

    behind: WSGIApplication

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        body = read_body(environ).decode("utf-8", errors="replace")
        form = parse_qsl(body, keep_blank_values=True)
        if ("Action", "SimulatePrincipalPolicy") not in form:
            return self.behind(environ, start_response)
        answer = _allow(form).encode()
        headers = [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))]
        start_response("200 OK", headers)
        return [answer]


def _allow(form: list[tuple[str, str]]) -> str:
    actions = [value for key, value in form if key.startswith("ActionNames.")]
    resources = [value for key, value in form if key.startswith("ResourceArns.")] or ["*"]
    results = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName>"
        f"<EvalResourceName>{escape(resource)}</EvalResourceName>"
        "<EvalDecision>allowed</EvalDecision><MatchedStatements/><MissingContextValues/></member>"
        for action in actions
        for resource in resources
    )
    return (
        f'<SimulatePrincipalPolicyResponse xmlns="{_NAMESPACE}"><SimulatePrincipalPolicyResult>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults>"
        "</SimulatePrincipalPolicyResult><ResponseMetadata><RequestId>0</RequestId>"
        "</ResponseMetadata></SimulatePrincipalPolicyResponse>"
    )
