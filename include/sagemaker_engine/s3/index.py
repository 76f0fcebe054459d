"""Index of the objects: one SQLite database beside the files, shared by processes and threads.

Every change is one transaction, so that a reader sees the whole old or the whole new object. The
database runs in WAL mode: readers never wait for writers. Keys are stored as UTF-8 bytes, whose
order under the primary key is S3's listing order, so a page of a listing is a range scan.

Durability: `synchronous=NORMAL` survives the death of any process at any moment; after a power cut
the newest transactions may be gone, but the database is whole. `FULL` (with `fsync=True` on the
store) survives power cuts as well, for one disk flush a write.
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
    """The store's database. `write` lends the write lock of all threads and processes."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self._synchronous = "FULL" if fsync else "NORMAL"
        self._one_writer = (os.getpid(), threading.Lock())
        super().__init__(path, _SCHEMA)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one transaction: it commits, or an exception rolls it back.

        Threads queue at a lock of their own rather than in SQLite, whose waiting is a poll of up
        to 100 ms; a forked child makes its own, since the parent's may be held for good there.
        """
        if self._one_writer[0] != os.getpid():
            self._one_writer = (os.getpid(), threading.Lock())
        with self._one_writer[1], super().write() as db:
            yield db

    def _connect(self) -> sqlite3.Connection:
        db = super()._connect()
        db.execute(f"PRAGMA synchronous={self._synchronous}")
        db.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
        return db
