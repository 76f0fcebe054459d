"""A host that only serves hands its stop on to the coordinator; nothing else that connects is taken for one."""

from __future__ import annotations

import socket
import threading

import pytest

from tensorflow_trainer.host_contact import (
    STOP_LINE,
    is_stop_notice,
    receive_stop_notices,
    send_stop_notice,
)
from tests.limits import EVENT_LIMIT_S


def test_the_coordinator_hears_of_a_stop_that_another_host_was_asked_for() -> None:
    noticed = threading.Event()
    port = receive_stop_notices(noticed.set, port=0)

    send_stop_notice("127.0.0.1", port=port)

    assert noticed.wait(EVENT_LIMIT_S)


@pytest.mark.parametrize(
    ("said", "is_notice"),
    [
        (STOP_LINE, True),
        (b"", False),
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (STOP_LINE[:-1], False),
    ],
)
def test_only_the_line_itself_is_a_notice(said: bytes, is_notice: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(said)

        assert is_stop_notice(ours) is is_notice


def test_a_coordinator_that_does_not_hear_yet_is_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_at_once:
        port = closed_at_once.getsockname()[1]

    send_stop_notice("127.0.0.1", port=port)
