"""A receiver of OTLP over HTTP, which keeps the spans that it gets."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class OtlpReceiver:
    """The address of a receiver, and its spans in the order of arrival."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    senders: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> list[Any]:
        return [each for each in self.spans if each.name == name]


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Yield a receiver on loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/v1/traces":
                self.send_error(404)
                return
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                receiver.senders.append(values(each.resource))
                receiver.spans += [span for scope in each.scope_spans for span in scope.spans]
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def values(owner: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a sender."""
    found = {}
    for each in owner.attributes:
        kind = each.value.WhichOneof("value")
        found[each.key] = getattr(each.value, kind)
    return found
