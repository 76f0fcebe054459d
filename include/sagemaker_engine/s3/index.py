"""Index of the objects: one SQLite database beside the files, shared by processes and threads.

Every change is one transaction, so a reader sees either the old or the new object. The database runs
in WAL mode: readers never wait for writers. Keys are stored as UTF-8 bytes, whose order in the primary
key is S3's listing order. A page of a listing is therefore a range scan.

Durability: `synchronous=NORMAL` survives the death of any process at any moment. After a power cut the
newest transactions may be lost, but the database is consistent.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sagemaker_engine.state.database import Database

if TYPE_CHECKING:
    import sqlite3
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
_WAL_PAGES = 4000


class Index(Database):
    """The store's database. All threads and processes that write share one write lock."""

    def __init__(self, path: Path) -> None:
        self._one_writer = (os.getpid(), threading.Lock())
        super().__init__(path, _SCHEMA)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one transaction: it commits on exit and rolls back on an exception.

        Threads wait for an in-process lock instead of SQLite's, which polls at intervals of up to
        100 ms. A forked child creates a new lock, because the inherited one may never be released.
        """
        if self._one_writer[0] != os.getpid():
            self._one_writer = (os.getpid(), threading.Lock())
        with self._one_writer[1], super().write() as db:
            yield db

    def _connect(self) -> sqlite3.Connection:
        db = super()._connect()
        db.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
        return db
