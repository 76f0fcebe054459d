"""SQLite files shared by the engine's threads and the job runners' processes."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_TIMEOUT_S = 60.0


class Database:
    """Connections to one SQLite file in WAL mode, safe across threads and processes.

    A commit is in the file when the `write` block ends. It survives `kill -9`, but a power cut may undo it, because
    `synchronous` is NORMAL.
    """

    def __init__(self, path: Path, schema: str) -> None:
        """Open or create the file and apply `schema` (idempotent statements separated by semicolons)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._of_parent: list[sqlite3.Connection] = []
        self._owner_pid = os.getpid()
        self.apply(schema)

    def apply(self, schema: str) -> None:
        """Execute idempotent statements separated by semicolons, such as CREATE TABLE IF NOT EXISTS."""
        with self.write() as db:
            for statement in schema.split(";"):
                if statement.strip():
                    db.execute(statement)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading."""
        db = self._take()
        try:
            yield db
        finally:
            self._give(db)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one transaction, which excludes all other writers.

        The transaction commits at the end and rolls back if the body raises.
        """
        with self.read() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if (
                    db.in_transaction
                ):  # SQLite itself has rolled back after some errors, such as a full disk.
                    db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._owner_pid != os.getpid():
                # SQLite connections must be neither used nor closed in a forked child.
                self._of_parent += self._idle
                self._idle, self._owner_pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give(self, db: sqlite3.Connection) -> None:
        with self._lock:
            self._idle.append(db)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        return db
