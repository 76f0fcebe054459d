"""What a local stack consists of: the engine and Airflow's four services, as commands."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from include.stack.addresses import LOOPBACK, Addresses
from include.stack.leftovers import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from include.stack.home import Home

AIRFLOW = str(Path(sys.executable).with_name("airflow"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One service of the stack.

    `stop_grace_s` is how long it may take to stop after SIGTERM. `takes_children_along` says that
    what it forked is of no use without it and must end with it; the engine's jobs outlive a killed
    engine on purpose.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    log: Path
    stop_grace_s: float
    takes_children_along: bool = True


def engine(home: Home, addresses: Addresses) -> Component:
    """Return the engine on the stack's engine port."""
    return Component(
        name="engine",
        command=(
            sys.executable,
            "-m",
            "include.local_engine",
            "--port",
            str(addresses.engine_port),
            "--root",
            str(home.engine),
        ),
        env=with_environment(home, {"PYTHONPATH": str(home.repository)}),
        log=home.logs / "engine.log",
        stop_grace_s=10,
        takes_children_along=False,
    )


def airflow_services(home: Home, addresses: Addresses, env: Mapping[str, str]) -> list[Component]:
    """Return Airflow's services, the slowest first. Nobody serves logs: they are on this disk."""
    commands = {
        "api-server": ("api-server", "--host", LOOPBACK, "--port", str(addresses.ui_port)),
        "dag-processor": ("dag-processor",),
        "scheduler": ("scheduler", "--skip-serve-logs"),
        "triggerer": ("triggerer", "--skip-serve-logs"),
    }
    return [
        Component(
            name=name,
            command=(AIRFLOW, *arguments),
            env=with_environment(home, env),
            log=home.logs / f"{name}.log",
            stop_grace_s=3,
        )
        for name, arguments in commands.items()
    ]


def with_environment(home: Home, changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `changes`, without its Airflow and AWS settings.

    A stack answers to its home alone: an `AWS_PROFILE` or `AIRFLOW__*` of the user's shell would
    lead a local run to the user's account or database.
    """
    foreign = ("AIRFLOW", "AWS_", "SAGEMAKER_", "SM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    search_path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    return {**kept, "PATH": search_path, "PYTHONUNBUFFERED": "1", MARK: str(home.path), **changes}
