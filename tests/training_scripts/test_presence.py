"""A server is there while it takes connections; who waits for its end returns with it, or at the limit."""

from __future__ import annotations

import socket
import threading
import time

from tensorflow_trainer.host_contact import is_there, wait_until_gone

LIMIT_S = 30.0


def test_a_server_is_there_until_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert is_there(address, timeout_s=5)

    assert not is_there(address, timeout_s=5)


def test_waiting_ends_when_the_server_does() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    waiting = threading.Thread(target=wait_until_gone, args=(address,), kwargs={"limit_s": LIMIT_S})
    waiting.start()
    server.accept()[0].close()
    assert waiting.is_alive()

    server.close()

    waiting.join(LIMIT_S / 2)
    assert not waiting.is_alive()


def test_waiting_ends_at_its_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        wait_until_gone(f"127.0.0.1:{server.getsockname()[1]}", limit_s=0.3)

    assert time.monotonic() - began >= 0.3
