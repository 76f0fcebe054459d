"""Database tables of the model registry: model package groups, model packages, and other resources.

The engine only stores and describes the other resources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.store import put_tags
from sagemaker_engine.wire.paging import DEFAULT_PAGE, make_token, read_token

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

    from sagemaker_engine.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS model_package_groups (
    arn TEXT PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL, document TEXT NOT NULL,
    last_version INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model_packages (
    arn TEXT PRIMARY KEY, group_arn TEXT, name TEXT NOT NULL, version INTEGER,
    created_at REAL NOT NULL, approval TEXT, document TEXT NOT NULL,
    client_token TEXT UNIQUE, fingerprint TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS model_packages_by_group ON model_packages (group_arn, version)
"""

_ORDERS = {"Name": "name", "CreationTime": "created_at"}
_FILTERS = {
    "NameContains": "instr(lower(name), lower(?)) > 0",
    "CreationTimeAfter": "created_at > ?",
    "CreationTimeBefore": "created_at < ?",
}
"""Member of a List request -> SQL condition on its value."""


class MissingRowError(Exception):
    """No row has this ARN."""


class ExistingRowError(Exception):
    """A row with this ARN exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCondition:
    """Condition on the rows of a List response: SQL over the columns, and the values of its placeholders."""

    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryTables:
    """Access to the tables. The column `document` has the members of the Describe response by wire name, as JSON."""

    database: Database

    def __post_init__(self) -> None:
        """Create the missing tables of groups and packages."""
        self.database.apply(SCHEMA)

    def create_plain(self, table: str) -> None:
        """Create the table of a resource that is only stored and described, unless the table exists."""
        self.database.apply(
            f"CREATE TABLE IF NOT EXISTS {table} (arn TEXT PRIMARY KEY, name TEXT NOT NULL, "
            "created_at REAL NOT NULL, document TEXT NOT NULL) WITHOUT ROWID"
        )

    def add(
        self,
        table: str,
        arn: str,
        name: str,
        document: dict[str, Any],
        *,
        tags: list[dict[str, str]],
        at: float,
    ) -> None:
        """Insert a row and its tags; `at` is in epoch seconds. Packages are inserted by `add_package`.

        Raises:
            ExistingRowError: A row with this ARN exists.
        """
        with self.database.write() as db:
            if _exists(db, table, arn):
                raise ExistingRowError(arn)
            db.execute(
                f"INSERT INTO {table} (arn, name, created_at, document) "  # noqa: S608  # A name of this package.
                "VALUES (?, ?, ?, ?)",
                (arn, name, at, json.dumps(document)),
            )
            put_tags(db, arn, {tag["Key"]: tag["Value"] for tag in tags})

    def delete_group(self, arn: str) -> bool:
        """Delete an empty group and return True; if it has packages, return False.

        Raises:
            MissingRowError: The group does not exist.
        """
        with self.database.write() as db:
            if not _exists(db, "model_package_groups", arn):
                raise MissingRowError(arn)
            held = db.execute("SELECT 1 FROM model_packages WHERE group_arn = ?", (arn,)).fetchone()
            if held is None:
                db.execute("DELETE FROM model_package_groups WHERE arn = ?", (arn,))
                db.execute("DELETE FROM tags WHERE arn = ?", (arn,))
            return held is None

    def get(self, table: str, arn: str) -> dict[str, Any]:
        """Return the document of a row.

        Raises:
            MissingRowError: The row does not exist.
        """
        with self.database.read() as db:
            return _document(db, table, arn)

    def change_package(self, arn: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Edit a package's document in place with `change`, in one transaction.

        Raises:
            MissingRowError: The package does not exist.
        """
        with self.database.write() as db:
            document = _document(db, "model_packages", arn)
            change(document)
            db.execute(
                "UPDATE model_packages SET document = ?, approval = ? WHERE arn = ?",
                (json.dumps(document), document.get("ModelApprovalStatus"), arn),
            )

    def delete(self, table: str, arn: str) -> None:
        """Delete a row and its tags; groups have `delete_group`.

        Raises:
            MissingRowError: The row does not exist.
        """
        with self.database.write() as db:
            _document(db, table, arn)
            db.execute(f"DELETE FROM {table} WHERE arn = ?", (arn,))  # noqa: S608  # A name of this package.
            db.execute("DELETE FROM tags WHERE arn = ?", (arn,))

    def page(
        self, table: str, request: dict[str, Any], extra: Iterable[SqlCondition] = ()
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return the documents of the page that a List request selects, and the next page's token or None."""
        conditions = [*_conditions(request), *extra]
        where = " AND ".join(condition.sql for condition in conditions) or "1"
        order = _ORDERS[request.get("SortBy", "CreationTime")]
        direction = "DESC" if request.get("SortOrder") == "Descending" else "ASC"
        start, limit = read_token(request) or 0, request.get("MaxResults", DEFAULT_PAGE)
        sql = (  # Names and conditions come from this package only; values are bound.
            f"SELECT document FROM {table} WHERE {where} "  # noqa: S608
            f"ORDER BY {order} {direction}, arn {direction} LIMIT ? OFFSET ?"
        )
        values = [value for condition in conditions for value in condition.values]
        with self.database.read() as db:
            rows = db.execute(sql, [*values, limit + 1, start]).fetchall()
        documents = [json.loads(row["document"]) for row in rows[:limit]]
        return documents, make_token(request, start + limit) if len(rows) > limit else None


def _conditions(request: dict[str, Any]) -> Iterator[SqlCondition]:
    for member, sql in _FILTERS.items():
        if member in request:
            yield SqlCondition(sql=sql, values=(request[member],))


def _exists(db: sqlite3.Connection, table: str, arn: str) -> bool:
    sql = f"SELECT 1 FROM {table} WHERE arn = ?"  # noqa: S608  # A name of this package.
    return db.execute(sql, (arn,)).fetchone() is not None


def _document(db: sqlite3.Connection, table: str, arn: str) -> dict[str, Any]:
    sql = f"SELECT document FROM {table} WHERE arn = ?"  # noqa: S608  # A name of this package.
    row = db.execute(sql, (arn,)).fetchone()
    if row is None:
        raise MissingRowError(arn)
    document: dict[str, Any] = json.loads(row["document"])
    return document
