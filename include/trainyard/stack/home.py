"""Folder of a stack's files: deleting it resets everything."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from trainyard import installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The folder of one stack and the places in it.

    Attributes:
        path: of the folder.
        project: the folder whose `dags` and `plugins` the stack's Airflow runs.
    """

    path: Path
    project: Path = field(default_factory=installation.project)

    @classmethod
    def of(cls, path: str | Path | None = None) -> Home:
        """Return the home at `path`, else `TRAINYARD_HOME`, else the project's `.trainyard/`."""
        chosen = path or os.environ.get("TRAINYARD_HOME") or installation.project() / ".trainyard"
        return cls(path=Path(chosen).resolve())

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.path / "airflow"

    @property
    def database(self) -> Path:
        """The metadata database, a SQLite file."""
        return self.airflow / "airflow.db"

    @property
    def dags(self) -> Path:
        """DAGs of this home's own, read beside the project's where the folder is there at the start."""
        return self.path / "dags"

    @property
    def engine(self) -> Path:
        """The engine's root: its S3 objects, jobs and logs."""
        return self.path / "engine"

    @property
    def logs(self) -> Path:
        """Folder with one log file per component."""
        return self.path / "logs"

    @property
    def identity(self) -> Path:
        """The stack's generated secrets, readable by its owner only."""
        return self.path / "identity.json"

    @property
    def passwords(self) -> Path:
        """The password file of Airflow's SimpleAuthManager."""
        return self.path / "passwords.json"

    @property
    def reports(self) -> Path:
        """The reports of runs, one folder each; beside the home, so that resetting it keeps them."""
        return self.path.parent / "runs"

    @property
    def record(self) -> Path:
        """Record of the running stack: supervisor process, addresses. Present while a stack is up."""
        return self.path / "stack.json"

    @property
    def lock(self) -> Path:
        """Held by the one supervisor of this home."""
        return self.path / "stack.lock"

    def prepare(self) -> None:
        """Create the folders, readable by their owner only: they hold secrets."""
        for folder in (self.path, self.airflow, self.engine, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
