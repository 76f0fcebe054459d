"""Folder of a stack's files. Deleting it resets the stack."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from trainyard import installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Folder of one stack, and the paths in it.

    Attributes:
        path: path of the folder.
        project: folder whose `dags` and `plugins` are used by the stack's Airflow.
    """

    path: Path
    project: Path = field(default_factory=installation.project)

    @classmethod
    def of(cls, path: str | Path | None = None) -> Home:
        """Return the home at `path`, by default `TRAINYARD_HOME` or the project's `.trainyard/`."""
        chosen = path or os.environ.get("TRAINYARD_HOME") or installation.project() / ".trainyard"
        return cls(path=Path(chosen).resolve())

    @property
    def airflow(self) -> Path:
        """The stack's AIRFLOW_HOME."""
        return self.path / "airflow"

    @property
    def database(self) -> Path:
        """The metadata database, a SQLite file."""
        return self.airflow / "airflow.db"

    @property
    def dags(self) -> Path:
        """Folder of additional DAGs. It is read, besides the project's, if it exists when the stack starts."""
        return self.path / "dags"

    @property
    def engine(self) -> Path:
        """Root folder of the engine, with its S3 objects, jobs and logs."""
        return self.path / "engine"

    @property
    def logs(self) -> Path:
        """Folder with one log file per component."""
        return self.path / "logs"

    @property
    def identity(self) -> Path:
        """File of the stack's generated secrets, readable by its owner only."""
        return self.path / "identity.json"

    @property
    def passwords(self) -> Path:
        """The password file of Airflow's SimpleAuthManager."""
        return self.path / "passwords.json"

    @property
    def reports(self) -> Path:
        """Folder of the reports, one folder per run. It is outside of the home: a reset keeps the reports."""
        return self.path.parent / "runs"

    @property
    def record(self) -> Path:
        """File with the supervisor process and the addresses of the running stack. It exists while a stack is up."""
        return self.path / "stack.json"

    @property
    def engine_port(self) -> Path:
        """File with the last port of `trainyard engine`, which the next start uses again."""
        return self.path / "engine_port"

    @property
    def lock(self) -> Path:
        """Lock file of this home. The supervisor holds its lock, so a home has at most one supervisor."""
        return self.path / "stack.lock"

    def prepare(self) -> None:
        """Create the folders. The home is readable by its owner only, because it has secrets; git ignores it."""
        for folder in (self.path, self.airflow, self.engine, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        (self.path / ".gitignore").write_text("*\n", encoding="utf-8")
