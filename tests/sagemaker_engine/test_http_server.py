"""The HTTP server by the letter of the wire: raw sockets against small applications."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import requests

from sagemaker_engine.http.server import FileBody, Server, serve
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def echo(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with what arrived."""
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ['QUERY_STRING']} "
    return [line.encode("latin-1") + body]


@pytest.fixture
def start() -> Iterator[Callable[[Any], Server]]:
    servers: list[Server] = []

    def start_one(app: WSGIApplication) -> Server:
        servers.append(serve(app))
        return servers[-1]

    yield start_one
    for server in servers:
        server.shutdown()


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=EVENT_LIMIT_S)


def talk(server: Server, *sent: bytes) -> bytes:
    """Send everything and return all that comes until the server closes."""
    with connect(server) as sock:
        for data in sent:
            sock.sendall(data)
        with suppress(OSError):  # the server may have answered and closed already
            sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def read_answer(sock: socket.socket, length: int) -> bytes:
    """Return one answer whose body has `length` bytes."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < length:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


def test_a_connection_serves_many_requests(start: Any) -> None:
    server = start(echo)
    with connect(server) as sock:
        for number in range(3):
            sock.sendall(b"PUT /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab" % number)
            answer = read_answer(sock, 9)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"PUT /%d  ab" % number)


def test_pipelined_requests_are_answered_in_order(start: Any) -> None:
    answer = talk(start(echo), b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
    assert answer.index(b"GET /1") < answer.index(b"GET /2")


def test_path_and_query_arrive_decoded_and_raw(start: Any) -> None:
    seen: list[tuple[str, str, str]] = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        seen.append((environ["PATH_INFO"], environ["QUERY_STRING"], environ["RAW_URI"]))
        start_response("204 No Content", [])
        return []

    target = b"/a//..%2F%C3%BC/%2e?x=%41&y"
    answer = talk(start(app), b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert seen == [("/a//../\u00c3\u00bc/.", "x=%41&y", target.decode())]
    assert b"Content-Length" not in answer


def test_continue_is_sent_when_the_application_reads_and_only_then(start: Any) -> None:
    server = start(echo)
    head = b"PUT /k HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    with connect(server) as sock:
        sock.sendall(head)
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert read_answer(sock, 11).endswith(b"abc")

    def refuse(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("412 Precondition Failed", [])
        return [b""]

    with connect(start(refuse)) as sock:
        sock.sendall(head)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 412")
    assert b"Connection: close" in answer


def test_chunked_requests_are_joined(start: Any) -> None:
    sent = b"POST /k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"3;note=1\r\nabc\r\n1\r\n\n\r\n0\r\nTrailer: x\r\n\r\n"
    answer = talk(start(echo), sent, chunks, b"GET /next HTTP/1.1\r\n\r\n")
    assert b"POST /k  abc\n" in answer
    assert b"GET /next" in answer


def test_an_answer_of_unknown_length_is_chunked_or_ends_the_connection(start: Any) -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        yield from (b"ab", b"", b"cde")

    server = start(app)
    modern = talk(server, b"GET / HTTP/1.1\r\n\r\n")
    assert modern.endswith(b"\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")
    old = talk(server, b"GET / HTTP/1.0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nabcde")
    assert requests.get(server.url, timeout=EVENT_LIMIT_S).content == b"abcde"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_stretch_of_a_file_is_sent_and_closed(start: Any, tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 10_000)
    opened: list[FileBody] = []

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        opened.append(FileBody(path.open("rb"), offset=100, length=2_000_000))
        return opened[0]

    answer = requests.request(method, start(app).url, timeout=EVENT_LIMIT_S)
    assert answer.headers["Content-Length"] == "2000000"
    expected = path.read_bytes()[100:2_000_100] if method == "GET" else b""
    assert answer.content == expected
    # The client has all bytes before the server closes the file.
    deadline = time.monotonic() + EVENT_LIMIT_S
    while not opened[0].file.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert opened[0].file.closed


def test_a_file_body_is_an_ordinary_iterable_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    body = FileBody((tmp_path / "file").open("rb"), offset=2, length=5)
    assert b"".join(body) == b"23456"
    body.close()


def test_a_failing_application_is_a_500_and_the_server_lives_on(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/fails":
            raise ValueError("a fault of the application")
        return echo(environ, start_response)

    server = start(app)
    assert requests.get(f"{server.url}/fails", timeout=EVENT_LIMIT_S).status_code == 500
    assert requests.get(f"{server.url}/works", timeout=EVENT_LIMIT_S).status_code == 200
    assert "a fault of the application" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"NONSENSE\r\n\r\n", b"400", id="no request line"),
        pytest.param(b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400", id="no colon"),
        pytest.param(b"GET / HTTP/1.1\r\nA : b\r\n\r\n", b"400", id="space before colon"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400", id="length"),
        pytest.param(
            b"PUT / HTTP/1.1\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n",
            b"400",
            id="long length",
        ),
        pytest.param(b"GET http://[::1 HTTP/1.1\r\n\r\n", b"400", id="open bracket"),
        pytest.param(b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414", id="long target"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n", b"431", id="headers"),
    ],
)
def test_what_is_not_http_is_refused(start: Any, sent: bytes, status: bytes) -> None:
    assert talk(start(echo), sent).startswith(b"HTTP/1.1 " + status)


def test_a_body_cut_short_reaches_the_application_as_an_error(start: Any) -> None:
    seen: list[BaseException] = []
    done = threading.Event()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return echo(environ, start_response)
        except ConnectionError as error:
            seen.append(error)
            raise
        finally:
            done.set()

    server = start(app)
    assert talk(server, b"PUT / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc") == b""
    assert done.wait(EVENT_LIMIT_S)
    assert "7 bytes early" in str(seen[0])


def test_an_unread_body_does_not_disturb_the_next_request(start: Any) -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [environ["PATH_INFO"].encode()]

    body = b"GET /trap HTTP/1.1\r\n\r\n" * 5000
    head = b"PUT /first HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = talk(start(app), head + body + b"GET /second HTTP/1.1\r\n\r\n")
    assert b"/first" in answer
    assert b"/second" in answer
    assert b"/trap" not in answer


def test_lines_of_a_body_can_be_read(start: Any) -> None:
    lines: list[bytes] = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        lines.append(environ["wsgi.input"].readline(2))
        lines.extend(environ["wsgi.input"].readlines())
        start_response("200 OK", [])
        return [b"ok"]

    talk(start(app), b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc\ndef\ng")
    assert lines == [b"ab", b"c\n", b"def\n", b"g"]


def test_shutdown_lets_a_running_request_finish_and_refuses_new_ones(start: Any) -> None:
    entered, release = threading.Event(), threading.Event()

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        entered.set()
        assert release.wait(EVENT_LIMIT_S)
        start_response("200 OK", [])
        return [b"finished"]

    server = serve(app)
    idle = connect(server)
    with connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert entered.wait(EVENT_LIMIT_S)
        stopping = threading.Thread(target=server.shutdown)
        stopping.start()
        assert idle.recv(1) == b""
        release.set()
        assert read_answer(sock, 8).endswith(b"finished")
        stopping.join(EVENT_LIMIT_S)
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        connect(server)
