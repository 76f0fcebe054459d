"""A folder of an instance that lives in S3: restored at the start, mirrored while the job runs.

As on SageMaker: every instance gets what is there at the start; afterwards new and changed files go
up continuously and deleted ones are deleted there; all instances share one prefix.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from include.local_engine.channels.listing import check_paths, list_prefix
from include.local_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from include.local_engine.channels.locations import S3Location
    from include.local_engine.s3.object_store import ObjectStore

log = logging.getLogger(__name__)

STABLE_S = 0.3
"""Where the kernel cannot tell who writes, a file is complete once unchanged for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """What tells one content of a file from the next without reading it."""

    inode: int
    size: int
    modified_ns: int


class MirroredFolder:
    """One instance's folder and the prefix that it is mirrored to. Not thread-safe."""

    def __init__(
        self, folder: Path, location: S3Location, objects: ObjectStore, *, deletes: bool = True
    ) -> None:
        """Make the folder. `deletes` tells whether a deleted file's object is deleted, too."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._location = location
        self._objects = objects
        self._deletes = deletes
        self._uploaded: dict[str, FileVersion] = {}
        self._seen: dict[str, tuple[FileVersion, float]] = {}

    def restore(self) -> int:
        """Copy what is in S3 into the folder and return the number of files.

        Copies, not links: a script may append to its own checkpoint.

        Fails with DataError: the bucket does not exist, or two objects cannot lie in one folder.
        """
        base = self._location.key.rstrip("/")
        prefix = self._location.join("") if base else self._location
        files = list_prefix(prefix, self._objects)
        check_paths(files)
        for file in files:
            target = self._folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._objects.open(file.bucket, file.key) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
        self._uploaded = _scan(self._folder)
        return len(files)

    def sync(self, *, final: bool = False) -> int:
        """Upload what is new and complete, mirror deletes; return the number of changes.

        `final=True`, once nothing writes any more, takes every file as it is.
        """
        now = time.monotonic()
        found = _scan(self._folder)
        changes = 0
        for name, version in found.items():
            if self._uploaded.get(name) == version:
                continue
            if final or self._is_complete(name, version, now):
                changes += self._upload(name, version)
        for name in [name for name in self._uploaded if name not in found]:
            changes += self._delete(name)
        self._seen = {name: seen for name, seen in self._seen.items() if name in found}
        return changes

    def _is_complete(self, name: str, version: FileVersion, now: float) -> bool:
        is_open = is_open_for_writing(self._folder / name)
        if is_open is not None:
            return not is_open
        before = self._seen.get(name)
        if before is None or before[0] != version:
            self._seen[name] = (version, now)
            return False
        return now - before[1] >= STABLE_S

    def _upload(self, name: str, version: FileVersion) -> int:
        path = self._folder / name
        key = self._location.join(name).key
        try:
            self._objects.put(self._location.bucket, key, path)
        except FileNotFoundError:
            return 0  # Deleted since; the next round mirrors that.
        if _version(path) != version:
            self._seen.pop(name, None)
            return 0  # Written to since: what went up may be half of it, so it goes up again.
        self._uploaded[name] = version
        return 1

    def _delete(self, name: str) -> int:
        del self._uploaded[name]
        if not self._deletes:
            return 0
        try:
            self._objects.delete(self._location.bucket, self._location.join(name).key)
        except S3Error as error:
            log.warning("cannot delete %s of %s: %s", name, self._location.uri, error)
        return 1


class MirrorThread(threading.Thread):
    """Mirrors folders again and again until `finish`."""

    def __init__(self, folders: Mapping[str, MirroredFolder], *, interval_s: float) -> None:
        """Prepare; `folders` by instance name, `interval_s` the pause between two rounds."""
        super().__init__(daemon=True, name="mirror")
        self._folders = folders
        self._interval_s = interval_s
        self._done = threading.Event()

    def run(self) -> None:
        """Mirror until told to finish; a failed round is logged and tried again."""
        while not self._done.wait(self._interval_s):
            for name, folder in self._folders.items():
                try:
                    folder.sync()
                except (OSError, S3Error):
                    log.exception("mirroring a folder of %s failed; it is tried again", name)

    def finish(self) -> None:
        """Stop the rounds and do the last one, which takes everything.

        Fails with S3Error: the prefix cannot be written.
        """
        self._done.set()
        if self.is_alive():
            self.join()
        for folder in self._folders.values():
            folder.sync(final=True)


def is_open_for_writing(path: Path) -> bool | None:
    """Tell whether any process has the file open for writing; None where the kernel cannot tell.

    A read lease is granted only on a file that nobody may write to (fcntl(2), "Leases"). It is
    given back at once; a writer that comes in between waits those microseconds.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False


def _scan(folder: Path) -> dict[str, FileVersion]:
    found: dict[str, FileVersion] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            version = _version(path)
            if version is not None:
                found[str(path.relative_to(folder))] = version
    return found


def _version(path: Path) -> FileVersion | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return FileVersion(inode=status.st_ino, size=status.st_size, modified_ns=status.st_mtime_ns)
