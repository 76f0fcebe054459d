"""A job's way out: to the world, and to nothing of the machine that runs the engine."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.sandbox.egress import EgressProxy
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def secret() -> Iterator[int]:
    """The port of a server on all addresses of this machine that says what nobody may learn."""
    with answering("0.0.0.0", "secret") as (port, _):  # noqa: S104 - the test is about its addresses
        yield port


@contextmanager
def answering(address: str, body: str = "") -> Iterator[tuple[int, list[str]]]:
    """Serve every request with 200 and `body`; give the port, and the heads that were received."""
    heads: list[str] = []
    with socket.create_server((address, 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    # what is unread at the close would reset the connection
                    heads.append(connection.recv(65536).decode())
                    connection.sendall(f"HTTP/1.1 200 OK\r\n\r\n{body}".encode())

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1], heads
        listener.shutdown(socket.SHUT_RDWR)


def ask(proxy: EgressProxy, *sent: str) -> str:
    """Send a request to the proxy; return all that comes back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.serve(listener)
        with socket.create_connection(listener.getsockname(), EVENT_LIMIT_S) as client:
            for text in sent:
                client.sendall(text.encode())
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
        listener.shutdown(socket.SHUT_RDWR)
    return answer


def own_address() -> str:
    """Return an address of this machine beside loopback's; loopback's if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    "variables", [{}, {"http_proxy": "up", "https_proxy": "up"}], ids=["direct", "upstream"]
)
@pytest.mark.parametrize("method", ["GET", "CONNECT"])
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",  # noqa: S104 - asked for, not bound
        "169.254.169.254",
        "own",
    ],
)
def test_a_job_reaches_nothing_of_this_machine(
    secret: int, host: str, method: str, variables: dict[str, str]
) -> None:
    authority = f"{own_address() if host == 'own' else host}:{secret}"
    target = authority if method == "CONNECT" else f"http://{authority}/"
    environment = dict.fromkeys(variables, f"http://127.0.0.1:{secret}")

    answer = ask(EgressProxy(environment), f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert "secret" not in answer
    assert "S3, SageMaker and the internet" in answer


def test_a_job_reaches_another_host_through_this_machines_proxy(secret: int) -> None:
    proxy = EgressProxy({"http_proxy": f"http://127.0.0.1:{secret}"})

    assert ask(proxy, "GET http://192.0.2.1/ HTTP/1.1\r\n\r\n").endswith("secret")


@pytest.fixture
def upstream() -> Iterator[tuple[int, list[str]]]:
    """The port of a proxy that answers every request with 200, and the heads that it got."""
    with answering("127.0.0.1") as served:
        yield served


@pytest.mark.parametrize(
    ("request_line", "got"),
    [
        ("GET http://192.0.2.1/ HTTP/1.1", ["Host: x", "Connection: close"]),
        ("CONNECT 192.0.2.1:443 HTTP/1.1", ["Host: x", "Connection: keep-alive"]),
    ],
    ids=["plain", "tunnel"],
)
@pytest.mark.parametrize(
    ("user", "sent", "authorization"),
    [
        ("", "", []),
        ("", "Proxy-Authorization: Basic own\r\n", ["Proxy-Authorization: Basic own"]),
        ("me:p%40ss@", "", ["Proxy-Authorization: Basic bWU6cEBzcw=="]),
        (
            "me:p%40ss@",
            "proxy-authorization: Basic own\r\n",
            ["Proxy-Authorization: Basic bWU6cEBzcw=="],
        ),
    ],
    ids=["none", "the job's", "the machine's", "both"],
)
def test_this_machines_proxy_gets_its_user_and_password(
    upstream: tuple[int, list[str]],
    request_line: str,
    got: list[str],
    user: str,
    sent: str,
    authorization: list[str],
) -> None:
    port, heads = upstream
    url = f"http://{user}127.0.0.1:{port}"
    proxy = EgressProxy({"http_proxy": url, "https_proxy": url})

    answer = ask(proxy, f"{request_line}\r\nHost: x\r\nConnection: keep-alive\r\n{sent}\r\n")

    assert answer.startswith("HTTP/1.1 200")
    first, *fields = heads[0].removesuffix("\r\n\r\n").split("\r\n")
    assert first == request_line
    assert sorted(fields) == sorted([*got, *authorization])
