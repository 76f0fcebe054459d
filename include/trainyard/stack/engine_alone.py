"""`engine`: the engine without Airflow, for any SageMaker client."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING

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


def engine_alone(home: Home, *, console: Console) -> int:
    """Run the engine until interrupted, printing its export lines once it answers.

    If the engine fails to start or the home is in use, raise a TrainingRunError.
    """
    stack = Stack(home, say=lambda line: console.print(line, markup=False), purpose="up")
    try:
        stack.start_engine()
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
