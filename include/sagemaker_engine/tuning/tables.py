"""Tuning jobs and their trials as rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import put_tags

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from sagemaker_engine.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS tuning_jobs (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    state TEXT NOT NULL, inherited TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
    created_at REAL NOT NULL, modified_at REAL NOT NULL, stop_requested_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tuning_trials (
    tuning_arn TEXT NOT NULL, number INTEGER NOT NULL, job_name TEXT NOT NULL,
    definition INTEGER NOT NULL, point TEXT NOT NULL, decided_at REAL NOT NULL, launched_at REAL,
    stop_reason TEXT, result TEXT, PRIMARY KEY (tuning_arn, number)) WITHOUT ROWID
"""
STATUS_KEY = "HyperParameterTuningJobStatus"
RUNNING = frozenset({"InProgress", "Stopping"})


class TuningNameTakenError(Exception):
    """A tuning job of this name exists."""


class UnknownTuningJobError(Exception):
    """No tuning job of this name exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial as stored, from the moment that it was decided on.

    `result` is there from its end: a training job summary's members, and `Curve`. `stop_reason` tells why
    the search, not its user, ended it before its time.
    """

    number: int
    job_name: str
    definition: int
    point: dict[str, str]
    decided_at: float
    launched_at: float | None
    stop_reason: str | None
    result: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """One tuning job as stored. Times are epoch seconds; `request` and `state` use wire names.

    `inherited` is what its parents' trials came to when it was created.
    """

    name: str
    arn: str
    request: dict[str, Any]
    state: dict[str, Any]
    inherited: list[dict[str, Any]]
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
        """Return whether the search has ended for good."""
        return self.status not in RUNNING


@dataclass(frozen=True, slots=True)
class TuningTables:
    """Reading and writing of both tables; names of tuning jobs are not case sensitive."""

    database: Database

    def __post_init__(self) -> None:
        """Create the tables where they are missing."""
        self.database.apply(SCHEMA)

    def create(self, row: TuningRow, *, tags: Mapping[str, str]) -> None:
        """Insert a tuning job.

        Raises:
            TuningNameTakenError: There is one of this name.
        """
        with self.database.write() as db:
            if _find(db, row.name) is not None:
                raise TuningNameTakenError(row.name)
            db.execute(
                "INSERT INTO tuning_jobs (key, name, arn, request, state, inherited, seed, status, "
                "created_at, modified_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(row.name.lower(), row.name, row.arn, json.dumps(row.request)),
                    *(json.dumps(row.state), json.dumps(row.inherited), row.seed, row.status),
                    *(row.created_at, row.modified_at),
                ),
            )
            put_tags(db, row.arn, dict(tags))

    def get(self, name: str) -> TuningRow:
        """Return one tuning job.

        Raises:
            UnknownTuningJobError: There is none of this name.
        """
        with self.database.read() as db:
            found = _find(db, name)
        if found is None:
            raise UnknownTuningJobError(name)
        return _tuning_row(found)

    def all(self) -> list[TuningRow]:
        """Return all tuning jobs by name."""
        with self.database.read() as db:
            return [
                _tuning_row(row) for row in db.execute("SELECT * FROM tuning_jobs ORDER BY key")
            ]

    def running(self) -> list[TuningRow]:
        """Return the tuning jobs that have not ended, the oldest first."""
        with self.database.read() as db:
            rows = db.execute(
                "SELECT * FROM tuning_jobs WHERE status IN ('InProgress', 'Stopping') "
                "ORDER BY created_at, key"
            ).fetchall()
        return [_tuning_row(row) for row in rows]

    def change(
        self, name: str, change: Callable[[dict[str, Any]], None], *, at: float, stop: bool = False
    ) -> None:
        """Let `change` edit the state in place, in one transaction; `stop` notes the wish to stop.

        Raises:
            UnknownTuningJobError: There is none of this name.
        """
        with self.database.write() as db:
            found = _find(db, name)
            if found is None:
                raise UnknownTuningJobError(name)
            row = _tuning_row(found)
            change(row.state)
            requested_at = row.stop_requested_at or (at if stop else None)
            db.execute(
                "UPDATE tuning_jobs SET state = ?, status = ?, modified_at = ?, "
                "stop_requested_at = ? WHERE key = ?",
                (
                    *(json.dumps(row.state), row.status, max(at, row.modified_at)),
                    *(requested_at, name.lower()),
                ),
            )

    def delete(self, name: str) -> None:
        """Remove a tuning job, its tags and what is known of its trials; their jobs stay.

        Raises:
            UnknownTuningJobError: There is none of this name.
        """
        with self.database.write() as db:
            found = _find(db, name)
            if found is None:
                raise UnknownTuningJobError(name)
            db.execute("DELETE FROM tags WHERE arn = ?", (found["arn"],))
            db.execute("DELETE FROM tuning_trials WHERE tuning_arn = ?", (found["arn"],))
            db.execute("DELETE FROM tuning_jobs WHERE key = ?", (name.lower(),))

    def trials(self, tuning_arn: str) -> list[TrialRow]:
        """Return the trials of a tuning job by number."""
        with self.database.read() as db:
            rows = db.execute(
                "SELECT * FROM tuning_trials WHERE tuning_arn = ? ORDER BY number", (tuning_arn,)
            ).fetchall()
        return [_trial_row(row) for row in rows]

    def decide(self, tuning_arn: str, trial: TrialRow) -> None:
        """Insert a trial that is about to be launched."""
        with self.database.write() as db:
            db.execute(
                "INSERT INTO tuning_trials (tuning_arn, number, job_name, definition, point, "
                "decided_at) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(tuning_arn, trial.number, trial.job_name, trial.definition),
                    *(json.dumps(trial.point), trial.decided_at),
                ),
            )

    def note(self, tuning_arn: str, number: int, **columns: Any) -> None:
        """Set columns of a trial: launched_at, stop_reason, result (a JSON value)."""
        if "result" in columns:
            columns["result"] = json.dumps(columns["result"])
        assignments = ", ".join(f"{column} = ?" for column in columns)
        with self.database.write() as db:
            db.execute(
                f"UPDATE tuning_trials SET {assignments} "  # noqa: S608  # Names of this package.
                "WHERE tuning_arn = ? AND number = ?",
                (*columns.values(), tuning_arn, number),
            )

    def forget(self, tuning_arn: str, number: int) -> None:
        """Remove a trial that was decided on and never launched."""
        with self.database.write() as db:
            db.execute(
                "DELETE FROM tuning_trials WHERE tuning_arn = ? AND number = ?",
                (tuning_arn, number),
            )


def _find(db: sqlite3.Connection, name: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM tuning_jobs WHERE key = ?", (name.lower(),)
    ).fetchone()
    return found


def _tuning_row(row: sqlite3.Row) -> TuningRow:
    return TuningRow(
        name=row["name"],
        arn=row["arn"],
        request=json.loads(row["request"]),
        state=json.loads(row["state"]),
        inherited=json.loads(row["inherited"]),
        seed=row["seed"],
        created_at=row["created_at"],
        modified_at=row["modified_at"],
        stop_requested_at=row["stop_requested_at"],
    )


def _trial_row(row: sqlite3.Row) -> TrialRow:
    return TrialRow(
        number=row["number"],
        job_name=row["job_name"],
        definition=row["definition"],
        point=json.loads(row["point"]),
        decided_at=row["decided_at"],
        launched_at=row["launched_at"],
        stop_reason=row["stop_reason"],
        result=None if row["result"] is None else json.loads(row["result"]),
    )
