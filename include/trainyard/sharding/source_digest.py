"""Fingerprint of a source, from digests of local files that are cached between runs."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.sharding.source_files import FileStamp, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainyard.sharding.source_files import SourceFile

log = logging.getLogger(__name__)

_NUM_THREADS = 2
_SETTLED_NS = 2 * 10**9
"""Age in nanoseconds up to which a change is too recent to cache the digest: another change may have the same times."""
_MAX_KEPT = 100_000
_TABLE = "CREATE TABLE IF NOT EXISTS digests (stamp TEXT PRIMARY KEY, digest TEXT NOT NULL)"


def fingerprint(files: Iterable[SourceFile], *, checksums: bool = True) -> str:
    """Return the SHA-256 over every file's name, size, limit of bytes to read, and content.

    The content of an object is represented by its ETag. The content of a local file is represented by its
    digest or, if `checksums` is False, by its modification time.

    Raises:
        DataError: a file cannot be read.
    """
    files = list(files)
    marks = {file.uri: file.etag for file in files}
    local = [file for file in files if file.etag is None]
    if not checksums:
        marks |= {file.uri: str(file.stamp and file.stamp.modified_ns) for file in local}
    elif local:
        marks |= zip((file.uri for file in local), digests_of(local), strict=True)
    digest = hashlib.sha256()
    for file in files:
        line = f"{file.name}\0{file.size}\0{file.max_bytes}\0{marks[file.uri]}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def algorithm() -> str:
    """Return the digest's algorithm: `blake3` (three times as fast) if that package is installed, or `sha256`."""
    return "blake3" if importlib.util.find_spec("blake3") else "sha256"


def digests_of(files: Sequence[SourceFile], *, cache: Path | None = None) -> list[str]:
    """Return the digests of local files, in their order.

    Args:
        files: local files, each with its `FileStamp` (size, times and inode).
        cache: SQLite file of the cache; None uses `trainyard/source-digests.sqlite` in the user's cache folder.

    Raises:
        DataError: a file cannot be read.
    """
    kept = _Kept(cache or _cache_path())
    stamps = [_stamp(file) for file in files]
    known = dict(kept.find(stamps))
    missing = [
        (stamp, file) for stamp, file in zip(stamps, files, strict=True) if stamp not in known
    ]
    with ThreadPoolExecutor(max_workers=_NUM_THREADS, thread_name_prefix="digest") as pool:
        digests = list(pool.map(lambda each: _digest(each[1]), missing))
    found = {stamp: digest for (stamp, _), digest in zip(missing, digests, strict=True)}
    kept.add({stamp: found[stamp] for stamp, file in missing if _is_settled(file)})
    known |= found
    return [known[stamp] for stamp in stamps]


def _digest(file: SourceFile) -> str:
    try:
        with Path(file.uri).open("rb", buffering=0) as stream:
            return str(hashlib.file_digest(stream, _new_digest).hexdigest())
    except OSError as error:
        raise unreadable(file, error) from error


def _new_digest() -> Any:
    if algorithm() == "sha256":
        return hashlib.sha256()
    return importlib.import_module("blake3").blake3()


def _stamp(file: SourceFile) -> str:
    return json.dumps([algorithm(), os.path.realpath(file.uri), file.stamp])


def _is_settled(file: SourceFile) -> bool:
    """Return whether the file's stamp (size, times, inode) identifies its content.

    For that, the file must still have this stamp, and both times in the stamp must be more than 2 s ago.
    """
    if file.stamp is None:
        return False
    try:
        is_same = FileStamp.of(Path(file.uri)) == file.stamp
    except OSError:
        return False
    newest = max(file.stamp.modified_ns, file.stamp.changed_ns)
    return is_same and time.time_ns() - newest > _SETTLED_NS


def _cache_path() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "trainyard" / "source-digests.sqlite"


class _Kept:
    """Cache of digests in an SQLite file that processes share. Its errors are logged and ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, stamps: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return (stamp, digest) of each of `stamps` that is in the cache.

        A stamp is a text that identifies a file and its version, as the function `_stamp` returns it.
        """
        try:
            if not self._path.exists():
                return []
            with closing(self._connected()) as database:
                query = "SELECT digest FROM digests WHERE stamp = ?"
                rows = [(stamp, database.execute(query, [stamp]).fetchone()) for stamp in stamps]
        except (OSError, sqlite3.Error) as error:
            log.debug("no digests from %s: %s", self._path, error)
            return []
        return [(stamp, row[0]) for stamp, row in rows if row]

    def add(self, digests: Mapping[str, str]) -> None:
        """Add digests, and delete the oldest entries if there are more than 100,000.

        The keys of `digests` are stamps: texts of `_stamp` that identify a file and its version.
        """
        if not digests:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connected()) as database, database:
                database.execute(_TABLE)
                database.executemany(
                    "INSERT OR REPLACE INTO digests VALUES (?, ?)", digests.items()
                )
                oldest = "DELETE FROM digests WHERE rowid <= (SELECT MAX(rowid) FROM digests) - ?"
                database.execute(oldest, [_MAX_KEPT])
        except (OSError, sqlite3.Error) as error:
            log.debug("digests are not kept in %s: %s", self._path, error)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=5)
