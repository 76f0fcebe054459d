"""The metadata database: migrated once per home and Airflow version."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import TYPE_CHECKING

from include.errors import TrainingRunError
from include.stack import processes
from include.stack.components import AIRFLOW, with_environment

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from include.stack.home import Home


def is_migrated(home: Home) -> bool:
    """Tell whether the database has the tables of the installed Airflow and providers."""
    marker = _marker(home)
    return home.database.exists() and marker.exists() and marker.read_text() == _versions()


def start_migration(home: Home, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `airflow db migrate` (about 7 s of CPU time); `finish_migration` waits for it."""
    return processes.start(
        (AIRFLOW, "db", "migrate"), env=with_environment(home, env), log=home.logs / "migrate.log"
    )


def finish_migration(home: Home, migration: subprocess.Popen[bytes]) -> None:
    """Wait for the migration and note that it was done.

    Raises:
        TrainingRunError: the migration failed; the message ends with the last lines of its log.
    """
    if migration.wait() != 0:
        log = home.logs / "migrate.log"
        raise TrainingRunError(
            "the metadata database could not be migrated",
            where=str(home.database),
            got="\n".join(log.read_text(errors="replace").splitlines()[-15:]),
            next_step="'make clean' removes a damaged stack together with its runs",
        )
    _marker(home).write_text(_versions())


def _marker(home: Home) -> Path:
    return home.airflow / "migrated-for"


def _versions() -> str:
    names = ((d.metadata["Name"], d.version) for d in distributions())
    return "\n".join(sorted(f"{n}=={v}" for n, v in names if n.startswith("apache-airflow")))
