"""Store of an engine's jobs: their requests, states, tags and runner processes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.database import Database
from sagemaker_engine.state.jobs import (
    JobNameTakenError,
    JobQuery,
    JobRow,
    ResourceKind,
    UnknownJobError,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    kind TEXT NOT NULL, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    state TEXT NOT NULL, status TEXT NOT NULL, created_at REAL NOT NULL, modified_at REAL NOT NULL,
    stop_requested_at REAL, runner_pid INTEGER, runner_start_ticks INTEGER,
    revision INTEGER NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_by_creation ON jobs (kind, created_at, name);
CREATE INDEX IF NOT EXISTS jobs_by_revision ON jobs (revision);
CREATE TABLE IF NOT EXISTS tags (
    arn TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (arn, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions (id INTEGER PRIMARY KEY, last INTEGER NOT NULL);
INSERT OR IGNORE INTO revisions VALUES (1, 0)
"""


JobRows = list[JobRow]


class JobStore:
    """All jobs of one engine. Safe to use from many threads and processes at once."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open or create the store in the SQLite file `path`."""
        self.database = Database(path, SCHEMA)
        self._clock = clock

    def create(
        self,
        kind: ResourceKind,
        name: str,
        *,
        arn: str,
        request: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        created_at: float,
        state: Mapping[str, Any],
        runner: tuple[int, int] | None = None,
    ) -> JobRow:
        """Insert a job and return it.

        `runner` is the process that already supervises the job: (pid, start time in clock ticks since boot).

        Raises:
            JobNameTakenError: A job with this kind and name exists.
        """
        with self.database.write() as db:
            if _find(db, kind, name) is not None:
                raise JobNameTakenError(f"a {kind.value} job has the name {name!r} already")
            db.execute(
                "INSERT INTO jobs (kind, name, arn, request, state, status, created_at, "
                "modified_at, revision, runner_pid, runner_start_ticks) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(kind.value, name, arn, json.dumps(request), json.dumps(state)),
                    *(state[kind.status_key], created_at, created_at, _next_revision(db)),
                    *(runner or (None, None)),
                ),
            )
            put_tags(db, arn, tags or {})
            return _load(db, kind, name)

    def get(self, kind: ResourceKind, name: str) -> JobRow:
        """Return one job.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.read() as db:
            return _load(db, kind, name)

    def list(self, kind: ResourceKind, query: JobQuery | None = None) -> JobRows:
        """Return the jobs that match the query; without a query, all jobs of the kind."""
        where, values = _conditions(kind, query or JobQuery())
        query = query or JobQuery()
        direction = "DESC" if query.descending else "ASC"
        sql = (  # The names come from this module only; the values are bound.
            f"SELECT * FROM jobs WHERE {where} "  # noqa: S608
            f"ORDER BY {query.order_by} {direction}, name {direction} LIMIT ?"
        )
        with self.database.read() as db:
            rows = db.execute(sql, [*values, -1 if query.limit is None else query.limit]).fetchall()
            return [_row(db, row) for row in rows]

    def changed_since(self, revision: int) -> JobRows:
        """Return the jobs with a higher revision than `revision`, in the order of their revisions."""
        with self.database.read() as db:
            rows = db.execute(
                "SELECT * FROM jobs WHERE revision > ? ORDER BY revision", (revision,)
            ).fetchall()
            return [_row(db, row) for row in rows]

    def update_state(
        self,
        kind: ResourceKind,
        name: str,
        change: Callable[[dict[str, Any]], None],
        *,
        when: Callable[[JobRow], bool] | None = None,
    ) -> JobRow:
        """Edit the state in place with `change`, in one transaction, and return the job.

        Nothing is written if `change` raises, if it leaves the state as it is, or if `when` returns False. `when`
        gets the job's row as read in this transaction. If the state is written, the modification time is updated;
        it never decreases.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            row = _load(db, kind, name)
            if when is None or when(row):
                self._change_state(db, row, change)
            return _load(db, kind, name)

    def update_request(
        self, kind: ResourceKind, name: str, change: Callable[[dict[str, Any]], None]
    ) -> JobRow:
        """Edit the stored request in place with `change` (UpdateTrainingJob) and return the job.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            row = _load(db, kind, name)
            change(row.request)
            _set(db, row, request=json.dumps(row.request), revision=_next_revision(db))
            return _load(db, kind, name)

    def request_stop(
        self,
        kind: ResourceKind,
        name: str,
        *,
        at: float,
        change: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Record a stop request at the time `at` (epoch seconds). Only the first request is recorded.

        `change` edits the state in the same transaction. If it raises, nothing is recorded.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            row = _load(db, kind, name)
            if change is not None:
                self._change_state(db, row, change)
            if row.stop_requested_at is None:
                _set(db, row, stop_requested_at=at, revision=_next_revision(db))

    def set_runner(self, kind: ResourceKind, name: str, *, pid: int, start_ticks: int) -> None:
        """Record the process that supervises the job.

        `start_ticks` is the process's start time in clock ticks since boot. It distinguishes this process from a
        later one with the same pid.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            _set(db, _load(db, kind, name), runner_pid=pid, runner_start_ticks=start_ticks)

    def release_runner(
        self, kind: ResourceKind, name: str, *, pid: int, change: Callable[[dict[str, Any]], None]
    ) -> bool:
        """Release the job from its dead runner `pid`, so that another process can supervise it.

        `change` edits the state in the same transaction. Returns False and changes nothing if the job has
        ended or has another runner.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            row = _load(db, kind, name)
            if row.is_terminal or row.runner_pid != pid:
                return False
            self._change_state(db, row, change)
            _set(db, row, runner_pid=None, runner_start_ticks=None)
            return True

    def delete(self, kind: ResourceKind, name: str) -> None:
        """Remove the job and its tags.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self.database.write() as db:
            row = _load(db, kind, name)
            db.execute("DELETE FROM tags WHERE arn = ?", (row.arn,))
            db.execute("DELETE FROM jobs WHERE kind = ? AND name = ?", (kind.value, name))

    def close(self) -> None:
        """Close the idle connections."""
        self.database.close()

    def _change_state(
        self, db: sqlite3.Connection, row: JobRow, change: Callable[[dict[str, Any]], None]
    ) -> None:
        state = row.state
        before = json.dumps(state)
        change(state)
        if json.dumps(state) == before:
            return
        modified_at = max(self._clock(), row.modified_at)
        state["LastModifiedTime"] = modified_at
        _set(
            db,
            row,
            state=json.dumps(state),
            status=row.status,
            modified_at=modified_at,
            revision=_next_revision(db),
        )


def _set(db: sqlite3.Connection, row: JobRow, **columns: Any) -> None:
    """Write columns of the job's row."""
    assignments = ", ".join(f"{column} = ?" for column in columns)
    db.execute(
        f"UPDATE jobs SET {assignments} WHERE kind = ? AND name = ?",  # noqa: S608  # Names of this module.
        (*columns.values(), row.kind.value, row.name),
    )


def _next_revision(db: sqlite3.Connection) -> int:
    row = db.execute("UPDATE revisions SET last = last + 1 RETURNING last").fetchone()
    return int(row["last"])


def _find(db: sqlite3.Connection, kind: ResourceKind, name: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM jobs WHERE kind = ? AND name = ?", (kind.value, name)
    ).fetchone()
    return found


def _load(db: sqlite3.Connection, kind: ResourceKind, name: str) -> JobRow:
    found = _find(db, kind, name)
    if found is None:
        raise UnknownJobError(f"no {kind.value} job has the name {name!r}")
    return _row(db, found)


def _row(db: sqlite3.Connection, row: sqlite3.Row) -> JobRow:
    return JobRow(
        kind=ResourceKind(row["kind"]),
        name=row["name"],
        arn=row["arn"],
        request=json.loads(row["request"]),
        state=json.loads(row["state"]),
        tags=tags_of(db, row["arn"]),
        created_at=row["created_at"],
        modified_at=row["modified_at"],
        stop_requested_at=row["stop_requested_at"],
        runner_pid=row["runner_pid"],
        runner_start_ticks=row["runner_start_ticks"],
        revision=row["revision"],
    )


def tags_of(db: sqlite3.Connection, arn: str) -> dict[str, str]:
    """Return the tags of a resource, sorted by key; empty if the resource does not exist."""
    rows = db.execute("SELECT key, value FROM tags WHERE arn = ? ORDER BY key", (arn,))
    return {row["key"]: row["value"] for row in rows}


def put_tags(db: sqlite3.Connection, arn: str, tags: Mapping[str, str]) -> None:
    """Insert or replace tags of a resource."""
    db.executemany(
        "INSERT OR REPLACE INTO tags (arn, key, value) VALUES (?, ?, ?)",
        [(arn, key, value) for key, value in tags.items()],
    )


def _conditions(kind: ResourceKind, query: JobQuery) -> tuple[str, Iterable[Any]]:
    conditions: list[tuple[str, tuple[Any, ...]]] = [("kind = ?", (kind.value,))]
    if query.statuses:
        marks = ", ".join("?" * len(query.statuses))
        conditions.append((f"status IN ({marks})", tuple(sorted(query.statuses))))
    if query.name_contains is not None:
        conditions.append(("instr(lower(name), lower(?)) > 0", (query.name_contains,)))
    for column, comparison, bound in (
        ("created_at", ">", query.created_after),
        ("created_at", "<", query.created_before),
        ("modified_at", ">", query.modified_after),
        ("modified_at", "<", query.modified_before),
    ):
        if bound is not None:
            conditions.append((f"{column} {comparison} ?", (bound,)))
    if query.after is not None:
        comparison = "<" if query.descending else ">"
        conditions.append((f"({query.order_by}, name) {comparison} (?, ?)", query.after))
    return " AND ".join(text for text, _ in conditions), [v for _, vs in conditions for v in vs]
