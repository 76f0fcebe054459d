"""IAM's SimulatePrincipalPolicy, which moto does not have and the SageMaker SDK calls for every trainer."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from sagemaker_engine.wire.json_service import read_body

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


@dataclass(frozen=True, slots=True)
class IamApplication:
    """Answers SimulatePrincipalPolicy with `allowed` for all actions, and forwards all other requests."""

    behind: WSGIApplication

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        body = read_body(environ)
        form = parse_qsl(body.decode("utf-8", errors="replace"), keep_blank_values=True)
        if ("Action", "SimulatePrincipalPolicy") not in form:
            passed_on = {**environ, "wsgi.input": io.BytesIO(body)}
            return self.behind({**passed_on, "CONTENT_LENGTH": str(len(body))}, start_response)
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
