"""The metadata database: migrated once per home and Airflow version."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.stack.airflow_environment import TRAINING_POOL, TRAINING_POOL_SLOTS
from trainyard.stack.components import AIRFLOW

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.stack.forking import ForkServer
    from trainyard.stack.home import Home

_SET_POOL = (
    *(AIRFLOW, "pools", "set", TRAINING_POOL, str(TRAINING_POOL_SLOTS)),
    *("one slot for each training instance in use", "--include-deferred"),
)


def is_migrated(home: Home) -> bool:
    """Return whether the database has the tables of the installed Airflow and providers, and the pool."""
    marker = _marker(home)
    return home.database.exists() and marker.exists() and marker.read_text() == _versions()


def migrate(home: Home, forks: ForkServer) -> None:
    """Create or update the tables, create the pool of training instances, and note that it was done.

    A later migration keeps the pool's size, which users may change.

    Raises:
        TrainingRunError: the migration or the creation failed; the message ends with the last lines of its log.
    """
    log = home.logs / "migrate.log"
    if forks.start((AIRFLOW, "db", "migrate"), log=log).wait() != 0:
        raise TrainingRunError(
            "the metadata database could not be migrated",
            where=str(home.database),
            got="\n".join(log.read_text(errors="replace").splitlines()[-15:]),
            next_step="'make clean' removes a damaged stack together with its runs",
        )
    had_pool = _marker(home).exists() and TRAINING_POOL in _marker(home).read_text()
    if not had_pool and forks.start(_SET_POOL, log=log).wait() != 0:
        raise TrainingRunError(
            "the pool of training instances could not be created",
            where=str(home.database),
            got="\n".join(log.read_text(errors="replace").splitlines()[-15:]),
            next_step="'make clean' removes a damaged stack together with its runs",
        )
    _marker(home).write_text(_versions())


def _marker(home: Home) -> Path:
    return home.airflow / "migrated-for"


def _versions() -> str:
    names = ((d.metadata["Name"], d.version) for d in distributions())
    airflow = sorted(f"{n}=={v}" for n, v in names if n.startswith("apache-airflow"))
    return "\n".join([*airflow, f"pool {TRAINING_POOL}"])
