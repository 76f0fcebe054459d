"""AutoML jobs and their steps as rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import put_tags
from sagemaker_engine.state.jobs import ResourceKind

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from sagemaker_engine.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS automl_jobs (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    state TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL, created_at REAL NOT NULL,
    modified_at REAL NOT NULL, stop_requested_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS automl_steps (
    automl_arn TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, job_name TEXT NOT NULL,
    recipe TEXT NOT NULL, decided_at REAL NOT NULL, launched_at REAL, is_stopped INTEGER NOT NULL DEFAULT 0,
    result TEXT, PRIMARY KEY (automl_arn, number)) WITHOUT ROWID
"""
STATUS_KEY = "AutoMLJobStatus"
SECONDARY_KEY = "AutoMLJobSecondaryStatus"
RUNNING = frozenset({"InProgress", "Stopping"})


class AutoMLNameTakenError(Exception):
    """An AutoML job of this name exists."""


class UnknownAutoMLJobError(Exception):
    """No AutoML job of this name exists."""


class StepKind(StrEnum):
    """Kind of a step."""

    ANALYSIS = "analysis"
    CANDIDATE = "candidate"
    ENSEMBLE = "ensemble"
    EXPLANATION = "explanation"

    @property
    def job_kind(self) -> ResourceKind:
        """Return the kind of job that does it."""
        trains = self in {StepKind.CANDIDATE, StepKind.ENSEMBLE}
        return ResourceKind.TRAINING if trains else ResourceKind.PROCESSING

    @property
    def is_candidate(self) -> bool:
        """Return whether it leaves a model."""
        return self.job_kind is ResourceKind.TRAINING


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLStep:
    """Stored record of one step, created when the step is decided on.

    `recipe` holds what the step needs in addition to the AutoML job's request. For a candidate: algorithm and point.
    For an ensemble: its members' job names. For an explanation: the candidate's job name. `result` is None until the
    step ends.
    """

    number: int
    kind: StepKind
    job_name: str
    recipe: dict[str, Any]
    decided_at: float
    launched_at: float | None = None
    is_stopped: bool = False
    result: dict[str, Any] | None = None

    @property
    def has_completed(self) -> bool:
        """Return whether its job did what it was to do."""
        return self.result is not None and self.result["Status"] == "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLRow:
    """One AutoML job as stored. Times are epoch seconds; `request` and `state` use wire names."""

    name: str
    arn: str
    request: dict[str, Any]
    state: dict[str, Any]
    seed: int
    created_at: float
    modified_at: float
    stop_requested_at: float | None

    @property
    def status(self) -> str:
        """Return the status, such as `InProgress`."""
        return str(self.state[STATUS_KEY])

    @property
    def is_terminal(self) -> bool:
        """Return whether the job has ended for good."""
        return self.status not in RUNNING


@dataclass(frozen=True, slots=True)
class AutoMLTables:
    """Reading and writing of both tables; names of AutoML jobs are not case sensitive."""

    database: Database

    def __post_init__(self) -> None:
        """Create the tables where they are missing."""
        self.database.apply(SCHEMA)

    def create(self, row: AutoMLRow, *, tags: Mapping[str, str]) -> None:
        """Insert an AutoML job.

        Raises:
            AutoMLNameTakenError: There is one of this name.
        """
        with self.database.write() as db:
            if _find(db, row.name) is not None:
                raise AutoMLNameTakenError(row.name)
            db.execute(
                "INSERT INTO automl_jobs (key, name, arn, request, state, seed, status, created_at, "
                "modified_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(row.name.lower(), row.name, row.arn, json.dumps(row.request)),
                    *(json.dumps(row.state), row.seed, row.status, row.created_at, row.modified_at),
                ),
            )
            put_tags(db, row.arn, dict(tags))

    def get(self, name: str) -> AutoMLRow:
        """Return one AutoML job.

        Raises:
            UnknownAutoMLJobError: There is none of this name.
        """
        with self.database.read() as db:
            found = _find(db, name)
        if found is None:
            raise UnknownAutoMLJobError(name)
        return _automl_row(found)

    def all(self) -> list[AutoMLRow]:
        """Return all AutoML jobs by name."""
        return self._rows("SELECT * FROM automl_jobs ORDER BY key")

    def running(self) -> list[AutoMLRow]:
        """Return the AutoML jobs that have not ended, the oldest first."""
        return self._rows(
            "SELECT * FROM automl_jobs WHERE status IN ('InProgress', 'Stopping') "
            "ORDER BY created_at, key"
        )

    def change(
        self, name: str, change: Callable[[dict[str, Any]], None], *, at: float, stop: bool = False
    ) -> None:
        """Let `change` edit the state in place, in one transaction; `stop` notes the wish to stop.

        Raises:
            UnknownAutoMLJobError: There is none of this name.
        """
        with self.database.write() as db:
            found = _find(db, name)
            if found is None:
                raise UnknownAutoMLJobError(name)
            row = _automl_row(found)
            change(row.state)
            requested_at = row.stop_requested_at or (at if stop else None)
            db.execute(
                "UPDATE automl_jobs SET state = ?, status = ?, modified_at = ?, "
                "stop_requested_at = ? WHERE key = ?",
                (
                    *(json.dumps(row.state), row.status, max(at, row.modified_at)),
                    *(requested_at, name.lower()),
                ),
            )

    def steps(self, automl_arn: str) -> list[AutoMLStep]:
        """Return the steps of an AutoML job by number."""
        with self.database.read() as db:
            rows = db.execute(
                "SELECT * FROM automl_steps WHERE automl_arn = ? ORDER BY number", (automl_arn,)
            ).fetchall()
        return [_step(row) for row in rows]

    def decide(self, automl_arn: str, step: AutoMLStep) -> None:
        """Insert a step that is about to be launched."""
        with self.database.write() as db:
            db.execute(
                "INSERT INTO automl_steps (automl_arn, number, kind, job_name, recipe, decided_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(automl_arn, step.number, step.kind.value, step.job_name),
                    *(json.dumps(step.recipe), step.decided_at),
                ),
            )

    def note(self, automl_arn: str, number: int, **columns: Any) -> None:
        """Set columns of a step: launched_at, is_stopped, result (a JSON value)."""
        if "result" in columns:
            columns["result"] = json.dumps(columns["result"])
        assignments = ", ".join(f"{column} = ?" for column in columns)
        with self.database.write() as db:
            db.execute(
                f"UPDATE automl_steps SET {assignments} "  # noqa: S608  # Names of this package.
                "WHERE automl_arn = ? AND number = ?",
                (*columns.values(), automl_arn, number),
            )

    def forget(self, automl_arn: str, number: int) -> None:
        """Remove a step that was decided on and never launched."""
        with self.database.write() as db:
            db.execute(
                "DELETE FROM automl_steps WHERE automl_arn = ? AND number = ?",
                (automl_arn, number),
            )

    def _rows(self, sql: str) -> list[AutoMLRow]:
        with self.database.read() as db:
            return [_automl_row(row) for row in db.execute(sql).fetchall()]


def _find(db: sqlite3.Connection, name: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM automl_jobs WHERE key = ?", (name.lower(),)
    ).fetchone()
    return found


def _automl_row(row: sqlite3.Row) -> AutoMLRow:
    return AutoMLRow(
        name=row["name"],
        arn=row["arn"],
        request=json.loads(row["request"]),
        state=json.loads(row["state"]),
        seed=row["seed"],
        created_at=row["created_at"],
        modified_at=row["modified_at"],
        stop_requested_at=row["stop_requested_at"],
    )


def _step(row: sqlite3.Row) -> AutoMLStep:
    return AutoMLStep(
        number=row["number"],
        kind=StepKind(row["kind"]),
        job_name=row["job_name"],
        recipe=json.loads(row["recipe"]),
        decided_at=row["decided_at"],
        launched_at=row["launched_at"],
        is_stopped=bool(row["is_stopped"]),
        result=None if row["result"] is None else json.loads(row["result"]),
    )
