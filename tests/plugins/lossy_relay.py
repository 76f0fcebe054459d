"""A way to the engine that loses the answer of chosen requests: the service has done them, nobody hears of it."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOP = {"connection", "transfer-encoding", "content-length"}


@contextmanager
def losing_answers(endpoint_url: str, *, operation: str, status: int | None) -> Iterator[str]:
    """Run a relay that loses the first answer to this operation; yield its URL.

    `status` is what the client gets instead; None: the connection is closed without a word.
    """
    engine = urlsplit(endpoint_url).netloc
    left = [operation]

    class LossyRelay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            connection = http.client.HTTPConnection(engine, timeout=60)
            connection.request("POST", self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if left and self.headers["X-Amz-Target"].endswith(f".{left[0]}"):
                left.clear()
                if status is None:
                    self.close_connection = True
                    return
                self._answer(status, [], b'{"__type": "InternalFailure"}')
            else:
                self._answer(answer.status, answer.getheaders(), content)

        def _answer(self, code: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(code)
            for name, value in headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), LossyRelay) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
