"""Database tables of searches and their jobs."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from sagemaker_engine.state.jobs import RUNNING_STATUSES
from sagemaker_engine.state.store import put_tags

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from sagemaker_engine.state.database import Database
    from sagemaker_engine.state.jobs import ResourceKind

_AS_JSON = frozenset({"request", "state", "inherited", "point", "recipe", "result"})


class SearchNameTakenError(Exception):
    """A search of this kind and name exists."""


class UnknownSearchError(Exception):
    """No search of this kind and name exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """Stored row of one search. Times are epoch seconds; `request` and `state` use wire names."""

    status_key: ClassVar[str]

    name: str
    arn: str
    request: dict[str, Any]
    state: dict[str, Any]
    seed: int
    created_at: float
    modified_at: float
    stop_requested_at: float | None = None

    @property
    def status(self) -> str:
        """Status, such as `InProgress`."""
        return str(self.state[self.status_key])

    @property
    def is_terminal(self) -> bool:
        """True if the search has ended."""
        return self.status not in RUNNING_STATUSES

    def job_suffix(self, number: int) -> str:
        """Return 8 hexadecimal digits for the name of the job `number`.

        A later search with the same name gets different digits, because they depend on the search's creation time.
        """
        text = f"{self.arn} {self.created_at!r} {number}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchJob(ABC):
    """Stored row of one job of a search. The row is inserted before the job is created.

    Attributes:
        number: number of the job within the search, from 0.
        decided_at: time of the row's creation in epoch seconds.
        launched_at: time of the job's creation in epoch seconds; None before it.
        result: result of the job; None until it ends.
    """

    number: int
    job_name: str
    decided_at: float
    launched_at: float | None = None
    result: dict[str, Any] | None = None

    @property
    @abstractmethod
    def job_kind(self) -> ResourceKind:
        """Kind of the job."""

    @property
    @abstractmethod
    def is_stopped(self) -> bool:
        """True if the search has stopped the job."""


Row = TypeVar("Row", bound=SearchRow)
Job = TypeVar("Job", bound=SearchJob)


class SearchTables(ABC, Generic[Row, Job]):
    """Tables of one kind of search. Names of searches are not case sensitive.

    Attributes:
        schema: SQL schema of both tables.
        searches: name of the table of searches.
        jobs_table: name of the table of their jobs.
        owner: column of `jobs_table` with the ARN of the job's search.
    """

    schema: ClassVar[str]
    searches: ClassVar[str]
    jobs_table: ClassVar[str]
    owner: ClassVar[str]

    def __init__(self, database: Database) -> None:
        """Create the tables if they are missing."""
        self._database = database
        database.apply(self.schema)

    @abstractmethod
    def _read_search(self, columns: dict[str, Any]) -> Row:
        """Return a search from its columns."""

    @abstractmethod
    def _read_job(self, columns: dict[str, Any]) -> Job:
        """Return a job from its columns."""

    def create(self, row: Row, *, tags: Mapping[str, str]) -> None:
        """Insert a search.

        Raises:
            SearchNameTakenError: A search of this name exists.
        """
        with self._database.write() as db:
            if self._find(db, row.name) is not None:
                raise SearchNameTakenError(row.name)
            keys = {"key": row.name.lower(), "status": row.status}
            _insert(db, self.searches, {**keys, **_columns(row)})
            put_tags(db, row.arn, dict(tags))

    def get(self, name: str) -> Row:
        """Return one search.

        Raises:
            UnknownSearchError: No search has this name.
        """
        with self._database.read() as db:
            return self._found(db, name)

    def all(self) -> list[Row]:
        """Return all searches, sorted by name."""
        return self._select("ORDER BY key")

    def running(self) -> list[Row]:
        """Return the searches that have not ended, the oldest first."""
        return self._select("WHERE status IN (?, ?) ORDER BY created_at, key", *RUNNING_STATUSES)

    def change(
        self, name: str, change: Callable[[dict[str, Any]], None], *, at: float, stop: bool = False
    ) -> None:
        """Edit the state of a search in one transaction: `change` receives the state and modifies it in place.

        `at` is the time of the change in epoch seconds. With `stop`, `at` is also stored as the time of the stop
        request, unless a stop was already requested.

        Raises:
            UnknownSearchError: No search has this name.
        """
        with self._database.write() as db:
            row = self._found(db, name)
            change(row.state)
            requested_at = row.stop_requested_at or (at if stop else None)
            db.execute(
                f"UPDATE {self.searches} SET state = ?, status = ?, modified_at = ?, "  # noqa: S608
                "stop_requested_at = ? WHERE key = ?",
                (
                    *(json.dumps(row.state), row.status, max(at, row.modified_at)),
                    *(requested_at, name.lower()),
                ),
            )

    def delete(self, name: str) -> None:
        """Delete a search, its tags and its rows of jobs. The jobs themselves are kept.

        Raises:
            UnknownSearchError: No search has this name.
        """
        with self._database.write() as db:
            arn = self._found(db, name).arn
            db.execute("DELETE FROM tags WHERE arn = ?", (arn,))
            db.execute(f"DELETE FROM {self.jobs_table} WHERE {self.owner} = ?", (arn,))  # noqa: S608
            db.execute(f"DELETE FROM {self.searches} WHERE key = ?", (name.lower(),))  # noqa: S608

    def jobs(self, arn: str) -> list[Job]:
        """Return the jobs of a search, sorted by number."""
        with self._database.read() as db:
            rows = db.execute(
                f"SELECT * FROM {self.jobs_table} WHERE {self.owner} = ? ORDER BY number",  # noqa: S608
                (arn,),
            ).fetchall()
        return [self._read_job(_values(row, without={self.owner})) for row in rows]

    def decide(self, arn: str, job: Job) -> None:
        """Insert a job that is about to be launched."""
        with self._database.write() as db:
            _insert(db, self.jobs_table, {self.owner: arn, **_columns(job)})

    def note(self, arn: str, number: int, **columns: Any) -> None:
        """Set columns of one job, such as `launched_at` and `result`.

        The job is the one with this number in the search `arn`. A value of `result` is stored as JSON.
        """
        if "result" in columns:
            columns["result"] = json.dumps(columns["result"])
        assignments = ", ".join(f"{column} = ?" for column in columns)
        with self._database.write() as db:
            db.execute(
                f"UPDATE {self.jobs_table} SET {assignments} "  # noqa: S608  # Names of this package.
                f"WHERE {self.owner} = ? AND number = ?",
                (*columns.values(), arn, number),
            )

    def forget(self, arn: str, number: int) -> None:
        """Delete the row of a job that was never launched."""
        with self._database.write() as db:
            db.execute(
                f"DELETE FROM {self.jobs_table} WHERE {self.owner} = ? AND number = ?",  # noqa: S608
                (arn, number),
            )

    def _select(self, condition: str, *values: Any) -> list[Row]:
        sql = f"SELECT * FROM {self.searches} {condition}"  # noqa: S608  # Names of this package.
        with self._database.read() as db:
            return [self._search(row) for row in db.execute(sql, values).fetchall()]

    def _found(self, db: sqlite3.Connection, name: str) -> Row:
        row = self._find(db, name)
        if row is None:
            raise UnknownSearchError(name)
        return self._search(row)

    def _find(self, db: sqlite3.Connection, name: str) -> sqlite3.Row | None:
        found: sqlite3.Row | None = db.execute(
            f"SELECT * FROM {self.searches} WHERE key = ?",  # noqa: S608  # Names of this package.
            (name.lower(),),
        ).fetchone()
        return found

    def _search(self, row: sqlite3.Row) -> Row:
        return self._read_search(_values(row, without={"key", "status"}))


def _columns(record: Any) -> dict[str, Any]:
    """Return a record's columns, with mappings and lists as JSON text."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: json.dumps(value) if name in _AS_JSON and value is not None else value
        for name, value in values.items()
    }


def _values(row: sqlite3.Row, *, without: set[str]) -> dict[str, Any]:
    return {
        name: json.loads(row[name]) if name in _AS_JSON and row[name] is not None else row[name]
        for name in row.keys()  # noqa: SIM118  # A row's own iteration gives its values.
        if name not in without
    }


def _insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> None:
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(columns.values()))  # noqa: S608
