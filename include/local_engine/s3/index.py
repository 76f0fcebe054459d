"""Which objects exist: one SQLite database beside the files, shared by processes and threads.

Every change is one transaction, so that a reader sees the whole old or the whole new object. The
database runs in WAL mode: readers never wait for writers. Keys are stored as UTF-8 bytes, whose
order under the primary key is S3's listing order, so a page of a listing is a range scan.

Durability: `synchronous=NORMAL` survives the death of any process at any moment; after a power cut
the newest transactions may be gone, but the database is whole. `FULL` (with `fsync=True` on the
store) survives power cuts as well, for one disk flush a write.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, region TEXT NOT NULL, created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bucket_settings (
    bucket TEXT NOT NULL, name TEXT NOT NULL, document BLOB NOT NULL, PRIMARY KEY (bucket, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, key BLOB NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, modified_at REAL NOT NULL, attributes TEXT NOT NULL,
    multipart TEXT NOT NULL, PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, bucket TEXT NOT NULL, key BLOB NOT NULL, started_at REAL NOT NULL,
    attributes TEXT NOT NULL, checksum_algorithm TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (
    upload TEXT NOT NULL, number INTEGER NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, modified_at REAL NOT NULL, checksums TEXT NOT NULL,
    PRIMARY KEY (upload, number)
) WITHOUT ROWID;
"""
_BUSY_TIMEOUT_S = 60
_WAL_PAGES = 4000


class Index:
    """Connections to the database: `read` and `write` lend one for the length of a block."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self._path = path
        self._synchronous = "FULL" if fsync else "NORMAL"
        self._pid = 0
        self._idle: list[sqlite3.Connection] = []
        self._before_fork: list[sqlite3.Connection] = []
        self._one_writer = threading.Lock()
        with self.read() as connection:
            connection.executescript(_SCHEMA)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; each statement sees one consistent state."""
        connection = self._borrow()
        try:
            yield connection
        finally:
            self._idle.append(connection)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside a transaction that holds the write lock of all processes.

        The block's normal end commits; an exception rolls everything back.
        """
        connection = self._borrow()
        try:
            # Threads queue here rather than in SQLite, whose waiting is a poll of up to 100 ms.
            with self._one_writer:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections; the index opens new ones when it is used again."""
        while self._idle:
            self._idle.pop().close()

    def _borrow(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            # A forked child must neither use nor close its parent's connections (sqlite.org,
            # "How to corrupt an SQLite database file", section 2.6): they are kept and left alone.
            self._before_fork += self._idle
            self._idle, self._one_writer, self._pid = [], threading.Lock(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
        return connection
