"""The loopback ports of one stack."""

from __future__ import annotations

import socket
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
USUAL_UI_PORT = 8080
USUAL_ENGINE_PORT = 4566


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Addresses of the UI, the execution API and the engine.

    They are fixed for the lifetime of a stack: a restarted component has the same address.
    """

    ui_port: int
    execution_port: int
    engine_port: int

    @property
    def ui(self) -> str:
        """The URL of Airflow's UI and REST API."""
        return f"http://{LOOPBACK}:{self.ui_port}"

    @property
    def execution(self) -> str:
        """The URL of the API that Airflow's tasks call."""
        return f"http://{LOOPBACK}:{self.execution_port}/execution/"

    @property
    def engine(self) -> str:
        """The URL of the engine, for `AWS_ENDPOINT_URL`."""
        return f"http://{LOOPBACK}:{self.engine_port}"


def choose(*, usual: bool, engine_port: int = USUAL_ENGINE_PORT) -> Addresses:
    """Return free loopback ports.

    With `usual`, the UI gets its usual port, and the engine gets `engine_port`. If one of these is taken, a
    free port replaces it.
    """
    wanted = (USUAL_UI_PORT, 0, engine_port) if usual else (0, 0, 0)
    held = [_bound(port) for port in wanted]
    ui, execution, engine = (listener.getsockname()[1] for listener in held)
    for listener in held:
        listener.close()
    return Addresses(ui_port=ui, execution_port=execution, engine_port=engine)


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError:
        listener.bind((LOOPBACK, 0))
    return listener
