"""Middleware of the API server that reports all errors of a rejected conf, and rejects a conf with too many levels.

When a run is triggered, Airflow validates the params one by one. It responds with the first error and the violated
schema. This middleware leaves the decision to Airflow, and replaces only the text of the response (docs/adr/0069).
Unknown responses pass unchanged.

Airflow stores a conf with several hundred levels, but then cannot serialize its response and returns status 500. This
middleware rejects such a request before Airflow stores it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

_TRIGGER = re.compile(r"/api/v2/dags/(?P<dag_id>[^/]+)/dagRuns/?$")
_REFUSED = "Invalid input for param "
_BAD_REQUEST = 400
_MARKS = re.compile(rb'\\.?|["\[\]{}]', re.DOTALL)
_MOST_LEVELS = 100
"""Maximum depth of a conf. Airflow 3.3 serializes about 250 levels of its response."""
_MOST_BYTES = 1 << 20
"""Maximum size of a request that is kept in memory. There is a limit because no login is needed to send one.

Longer requests get Airflow's own response."""


class ConfRefusals:
    """ASGI middleware that lists all errors in the response to a rejected conf.

    It also rejects a conf that is nested too deeply. Requests that trigger no run pass unchanged.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. If it triggers a run, an `_Exchange` checks the depth of the conf.

        A conf that is nested too deeply is rejected. If Airflow rejects the conf, the `_Exchange` may replace the
        text of Airflow's response with a list of all errors. Other responses pass unchanged.
        """
        dag_id = _triggered(scope)
        if dag_id is None:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, dag_id, receive, send)
        await self._app(exchange.plain_scope, exchange.receive, exchange.send)
        if exchange.is_too_deep:
            await _too_deep(dag_id)(scope, receive, send)


class _Nesting:
    """Nesting depth of a JSON text that arrives in chunks; no chunk is kept."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = self._is_escaped = False

    def exceeds(self, chunk: bytes, most: int) -> bool:
        """Return whether the text up to the end of this chunk has more than `most` levels.

        Brackets in strings do not count.
        """
        if not chunk:
            return False
        begin, self._is_escaped = int(self._is_escaped), False
        for found in _MARKS.finditer(chunk, begin):
            mark = found[0]
            if mark == b'"':
                self._is_text = not self._is_text
            elif mark == b"\\":
                self._is_escaped = True  # the escaped byte is in the next chunk
            elif not self._is_text and len(mark) == 1:
                self._depth += 1 if mark in b"[{" else -1
                if self._depth > most:
                    return True
        return False


class _Exchange:
    """Request that triggers a run, and its response.

    A response with status 400 is buffered, so that its text can be replaced. If the request is longer than
    `_MOST_BYTES`, the response is passed on unchanged.

    Attributes:
        is_too_deep: whether the conf has more than `_MOST_LEVELS` levels. If so, Airflow receives only a part
            of the request. Its response is discarded, and the middleware responds instead.
    """

    def __init__(self, scope: Scope, dag_id: str, receive: Receive, send: Send) -> None:
        self._scope, self._dag_id = scope, dag_id
        self._receive, self._send = receive, send
        self._asked, self._answer = bytearray(), bytearray()
        self._is_too_long = self.is_too_deep = False
        self._nesting = _Nesting()
        self._refusal: Message | None = None

    @property
    def plain_scope(self) -> Scope:
        """The request's scope without `accept-encoding`, so the response is not compressed."""
        headers = [each for each in self._scope["headers"] if each[0] != b"accept-encoding"]
        return {**self._scope, "headers": headers}

    async def receive(self) -> Message:
        message = await self._receive()
        chunk = message.get("body", b"")
        # The body itself is one more level. Within so many open brackets, no part of it is valid JSON.
        if self.is_too_deep or self._nesting.exceeds(chunk, _MOST_LEVELS + 1):
            self.is_too_deep = True
            return {"type": "http.request", "body": b"", "more_body": False}
        self._is_too_long |= len(self._asked) + len(chunk) > _MOST_BYTES
        if not self._is_too_long:
            self._asked += chunk
        return message

    async def send(self, message: Message) -> None:
        if self.is_too_deep:
            return
        if self._may_replace(message):
            self._refusal = message
        elif self._refusal is None:
            await self._send(message)
        else:
            self._answer += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_refusal(self._refusal)

    def _may_replace(self, message: Message) -> bool:
        is_refusal = message.get("status") == _BAD_REQUEST and not self._is_too_long
        return message["type"] == "http.response.start" and is_refusal

    async def _send_refusal(self, start: Message) -> None:
        body = bytes(self._answer)
        try:
            if str(json.loads(body).get("detail")).startswith(_REFUSED):
                detail = await asyncio.to_thread(self._detail)
                body = json.dumps({"detail": detail}).encode() if detail else body
        except Exception:  # Airflow's own response is correct, but has only the first error
            log.exception("The rejected conf of %s gets Airflow's own response", self._dag_id)
        headers = [each for each in start["headers"] if each[0].lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _detail(self) -> str | None:
        """Return all errors of the conf as text; None if there are none, or if the DAG is not Trainyard's."""
        from trainyard.errors import SpecError
        from trainyard_airflow.tasks.shared.schema_findings import conf_findings

        schemas, required = _schemas(self._scope["app"], self._dag_id)
        conf = json.loads(self._asked).get("conf") or {}
        findings = list(conf_findings(schemas, conf, required=required))
        if not findings:
            return None
        return str(SpecError(findings, subject=f"Invalid input for {self._dag_id}"))


def _too_deep(dag_id: str) -> JSONResponse:
    """Return the rejection of a conf that is nested too deeply."""
    from fastapi.responses import JSONResponse  # every process of Airflow imports this module

    from trainyard.errors import Finding, SpecError

    finding = Finding(
        where="conf",
        what="is nested too deeply",
        got=f"more than {_MOST_LEVELS} levels",
        allowed=f"at most {_MOST_LEVELS} levels",
        next_step="reduce the nesting, or put the data into a file",
    )
    detail = str(SpecError(finding, subject=f"Invalid input for {dag_id}"))
    return JSONResponse({"detail": detail}, status_code=_BAD_REQUEST)


def _triggered(scope: Scope) -> str | None:
    """Return the id of the DAG that a request triggers; None for other requests."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    found = _TRIGGER.search(scope["path"])
    return found["dag_id"] if found else None


def _schemas(app: Any, dag_id: str) -> tuple[dict[str, Mapping[str, Any]], frozenset[str]]:
    """Return the schemas of a DAG's params and the names of its required params; empty if it is not Trainyard's DAG."""
    from airflow.utils.session import create_session

    from trainyard_airflow.tasks.shared.default_args import PAGES_TAG

    with create_session() as session:
        dag = app.state.dag_bag.get_latest_version_of_dag(dag_id, session=session)
        if dag is None or PAGES_TAG not in dag.tags:
            return {}, frozenset()
        params = {name: dag.params.get_param(name) for name in dag.params}
    required = frozenset(name for name, each in params.items() if each.resolve() is None)
    return {name: each.schema for name, each in params.items()}, required
