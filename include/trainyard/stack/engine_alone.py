"""`engine`: the engine without Airflow, for any SageMaker client."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.stack.addresses import USUAL_ENGINE_PORT
from trainyard.stack.airflow_environment import (
    ENGINE_LOGIN,
    ENGINE_SECRET,
    REGION,
    aws_connection,
)
from trainyard.stack.stack import Stack

if TYPE_CHECKING:
    from rich.console import Console

    from trainyard.stack.home import Home


def exports(url: str) -> tuple[str, str]:
    """Return two shell lines that direct any SageMaker client to the engine."""
    return (
        f"export AWS_ENDPOINT_URL={shlex.quote(url)}",
        f"export AWS_ACCESS_KEY_ID={ENGINE_LOGIN} AWS_SECRET_ACCESS_KEY={ENGINE_SECRET} AWS_DEFAULT_REGION={REGION}",
    )


def airflow_export(url: str, home: Home) -> str:
    """Return a shell line that directs any Airflow on this machine to the engine."""
    connection = aws_connection(url, home=home)
    # What the launcher's own Airflow may read of this machine is no other Airflow's.
    own = connection["extra"]["trainyard"]
    for key in ("source_roots", "private_folders"):
        del own[key]
    return f"export AIRFLOW_CONN_AWS_DEFAULT={shlex.quote(json.dumps(connection))}"


def last_port(home: Home) -> int:
    """Return the port that the home's engine last used, or the usual port if there is none.

    With the same port as before, the clients' connections stay valid.
    """
    try:
        return int(home.engine_port.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return USUAL_ENGINE_PORT


def engine_alone(home: Home, *, console: Console, port: int | None = None) -> int:
    """Run the engine until it is interrupted; once it is ready, print shell lines that direct clients to it.

    Args:
        home: folder of the engine.
        console: the terminal.
        port: TCP port of the engine. None = the port that the home's engine used last, or 4566 at the first
            start. If None is given and that port is taken, the engine uses a free one.

    Raises:
        TrainingRunError: the engine fails to start, the home is in use, or the given port is taken.
    """
    wanted = port or last_port(home)
    stack = Stack(
        home,
        print_line=lambda line: console.print(line, markup=False),
        purpose="up",
        engine_port=wanted,
    )
    chosen = stack.addresses.engine_port
    if port is not None and chosen != port:
        raise TrainingRunError(
            "the engine's port is taken by another process",
            where="--port",
            got=str(port),
            next_step="end that process, or omit --port to use a free port",
        )
    try:
        stack.start_engine()
        home.engine_port.write_text(str(chosen), encoding="utf-8")
        if chosen != wanted:
            console.print(f"port {wanted} is taken by another process; the engine uses {chosen}")
        for line in (
            *exports(stack.addresses.engine),
            airflow_export(stack.addresses.engine, home),
        ):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print("engine is running; Ctrl-C ends it", style="dim")
        while True:
            stack.check()
            time.sleep(0.5)
    finally:
        stack.stop()
