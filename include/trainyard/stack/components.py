"""Components of a local stack: the engine and Airflow's services, as commands."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.installation import IMPORT_PATH
from trainyard.stack.addresses import LOOPBACK, Addresses
from trainyard.stack.leftovers import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.stack.home import Home

AIRFLOW = str(Path(sys.executable).with_name("airflow"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One service of the stack.

    `stop_grace_s` is the time between SIGTERM and SIGKILL, in seconds.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    log: Path
    stop_grace_s: float
    is_airflow: bool = True

    @property
    def takes_children_along(self) -> bool:
        """True if the component's child processes must end with it.

        An executor must end with its scheduler; the engine's jobs outlive a killed engine on purpose.
        """
        return self.is_airflow


def engine(home: Home, addresses: Addresses) -> Component:
    """Return the engine on the stack's engine port.

    Raises:
        TrainingRunError: the engine is not installed.
    """
    if importlib.util.find_spec("sagemaker_engine") is None:
        raise TrainingRunError(
            "the engine is not installed",
            where=sys.executable,
            next_step="run 'make engine' in a clone of Trainyard, or install trainyard[engine,train] into a separate "
            "environment",
        )
    return Component(
        name="engine",
        command=(
            sys.executable,
            "-m",
            "sagemaker_engine",
            "--port",
            str(addresses.engine_port),
            "--root",
            str(home.engine),
        ),
        env=with_environment(home, {}),
        log=home.logs / "engine.log",
        stop_grace_s=10,
        is_airflow=False,
    )


def airflow_services(home: Home, addresses: Addresses, env: Mapping[str, str]) -> list[Component]:
    """Return Airflow's services, without a log server: all logs are on the local disk.

    The execution API has its own process. If it shared a process with the UI's API, both could block until
    SQLite's timeout. The UI's API writes its audit log on the event loop. This write can wait for a task's
    request that holds the database lock, while that request needs the same event loop to continue (Airflow
    3.3.2, `api_fastapi/logging/decorators.py`).
    """
    api = (AIRFLOW, "api-server", "--host", LOOPBACK, "--apps")
    commands = {
        "api-server": (*api, "core", "--port", str(addresses.ui_port)),
        "execution-api": (*api, "execution", "--port", str(addresses.execution_port)),
        "dag-processor": (AIRFLOW, "dag-processor"),
        "scheduler": (AIRFLOW, "scheduler", "--skip-serve-logs"),
        "triggerer": (AIRFLOW, "triggerer", "--skip-serve-logs"),
    }
    return [
        Component(
            name=name,
            command=command,
            env=with_environment(home, env),
            log=home.logs / f"{name}.log",
            stop_grace_s=3,
        )
        for name, command in commands.items()
    ]


def import_path() -> str:
    """Return the `PYTHONPATH` of a process that needs Trainyard's packages: the same as this process's."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, IMPORT_PATH), *([given] if given else [])])


def with_environment(home: Home, changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without its Airflow and AWS settings, and with `changes` added.

    A stack depends on its home alone. An `AWS_PROFILE` or `AIRFLOW__*` of the user's shell would direct a local
    run to the user's account or database.
    """
    foreign = ("AIRFLOW", "AWS_", "SAGEMAKER_", "SM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    search_path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    own = {
        "PATH": search_path,
        "PYTHONPATH": import_path(),
        "PYTHONUNBUFFERED": "1",
        MARK: str(home.path),
        "SPT_NOENV": "1",  # setproctitle writes its title over the environment, and the mark with it
    }
    return {**kept, **own, **changes}
