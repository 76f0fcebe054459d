"""A folder of an instance that lives in S3: restored at the start, mirrored while the job runs.

As on SageMaker: every instance gets what is there at the start; afterwards new and changed files go
up continuously and deleted ones are deleted there; all instances share one prefix.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from include.local_engine.channels.listing import check_paths, list_prefix
from include.local_engine.channels.patience import Patience, is_transient
from include.local_engine.channels.placement import place_file
from include.local_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from include.local_engine.channels.locations import S3Location
    from include.local_engine.s3.object_store import ObjectStore

log = logging.getLogger(__name__)

GROWING_SUFFIX = ".jsonl"
"""Lines that are appended: where files grow, such a one goes up while it is written; what is up is its beginning."""
GROWING_S = 0.5
"""How often at most."""
STABLE_S = 0.3
"""Where the kernel cannot tell who writes, a file is complete once unchanged for this long."""
MOST_PAUSES = 20
"""How many pauses long the pause between two rounds becomes while rounds fail."""
MOST_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """What tells one content of a file from the next without reading it."""

    inode: int
    size: int
    modified_ns: int


class NotInS3Error(S3Error):
    """Changes of a folder that S3 refused: its code is that of the first that may pass, else of the first."""

    def __init__(self, location: S3Location, refused: Mapping[str, S3Error]) -> None:
        worst = next(filter(is_transient, refused.values()), next(iter(refused.values())))
        self.names = tuple(refused)
        named = ", ".join(self.names[:MOST_NAMES])
        rest = f" and {len(refused) - MOST_NAMES} more" if len(refused) > MOST_NAMES else ""
        said = f"{worst.code} ({worst.status}): {worst.message}"
        super().__init__(
            worst.code, f"cannot synchronise {named}{rest} with {location.uri}: {said}"
        )

    def __str__(self) -> str:
        return self.message


def _tell_nobody(_name: str, _text: str) -> None:
    """Keep it to ourselves."""


class MirroredFolder:
    """One instance's folder and the prefix that it is mirrored to. Not thread-safe."""

    def __init__(
        self,
        folder: Path,
        location: S3Location,
        objects: ObjectStore,
        *,
        deletes: bool = True,
        grows_below: str | None = None,
    ) -> None:
        """Make the folder.

        Args:
            folder: of the instance.
            location: the prefix.
            objects: where it is.
            deletes: whether a deleted file's object is deleted, too.
            grows_below: the beginning of the names, such as `statistics/`, of files that go up whole, again and again,
                while lines are appended; empty for all, None for none.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._location = location
        self._objects = objects
        self._deletes = deletes
        self._grows_below = grows_below
        self._uploaded: dict[str, FileVersion] = {}
        self._seen: dict[str, tuple[FileVersion, float]] = {}
        self._sent_at: dict[str, float] = {}
        self._is_abandoned = False

    def abandon(self) -> None:
        """Bring nothing more to S3: the instance vanishes. What is on its way arrives whole or not at all."""
        self._is_abandoned = True

    def restore(self) -> int:
        """Copy what is in S3 into the folder and return the number of files.

        Copies, not links: a script may append to its own checkpoint.

        Raises:
            DataError: The bucket does not exist, S3 does not give an object, or two cannot lie in one folder.
        """
        base = self._location.key.rstrip("/")
        prefix = self._location.join("") if base else self._location
        files = list_prefix(prefix, self._objects)
        check_paths(files)
        for file in files:
            target = self._folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            place_file(file, target, self._objects, link=False)
        self._uploaded = _scan(self._folder)
        return len(files)

    def sync(self, *, final: bool = False) -> int:
        """Upload what is new and complete, mirror deletes; return the number of changes.

        `final=True`, once nothing writes any more, takes every file as it is. Deletes wait while anything else is
        missing in S3: a script that has replaced its last checkpoint would otherwise lose it there before the new one
        is up.

        Raises:
            NotInS3Error: S3 refused some of it; the next round tries it again.
        """
        now = time.monotonic()
        found = _scan(self._folder)
        refused: dict[str, S3Error] = {}
        changes = 0
        for name, version in found.items():
            if self._uploaded.get(name) == version:
                continue
            complete = final or self._is_complete(name, version, now)
            # Asked last: what a killed writer left half done looks complete.
            if self._is_abandoned:
                return changes
            if complete:
                changes += self._try(self._upload, name, version, refused=refused)
        if not refused and not self._is_abandoned:
            for name in self._deleted(found):
                changes += self._try(self._delete, name, refused=refused)
        self._seen = {name: seen for name, seen in self._seen.items() if name in found}
        if refused:
            raise NotInS3Error(self._location, refused)
        return changes

    def _deleted(self, found: Mapping[str, FileVersion]) -> list[str]:
        """Return the files to delete in S3; none while one appeared beside them since the scan `found`.

        A scan is no snapshot: it may see neither a checkpoint that was just renamed into place nor the older one that
        was deleted right after.
        """
        gone = [name for name in self._uploaded if name not in found]
        if not gone:
            return []
        again = _scan(self._folder)
        if again.keys() - found.keys():
            return []
        return [name for name in gone if name not in again]

    def _try(
        self, change: Callable[..., int], name: str, *rest: FileVersion, refused: dict[str, S3Error]
    ) -> int:
        try:
            return change(name, *rest)
        except S3Error as error:
            refused[name] = error
            return 0

    def _is_complete(self, name: str, version: FileVersion, now: float) -> bool:
        if (
            self._grows_below is not None
            and name.startswith(self._grows_below)
            and name.endswith(GROWING_SUFFIX)
        ):
            last = self._sent_at.get(name, -GROWING_S)
            return now - last >= GROWING_S
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
        self._sent_at[name] = time.monotonic()
        if _version(path) != version:
            self._seen.pop(name, None)
            return 0  # Written to since: what went up may be half of it, so it goes up again.
        self._uploaded[name] = version
        return 1

    def _delete(self, name: str) -> int:
        if self._deletes:
            self._objects.delete(self._location.bucket, self._location.join(name).key)
        del self._uploaded[name]
        return int(self._deletes)


class MirrorThread(threading.Thread):
    """Mirrors folders again and again until `finish`."""

    def __init__(
        self,
        folders: Mapping[str, MirroredFolder],
        *,
        interval_s: float,
        patience: Patience | None = None,
        tell: Callable[[str, str], None] = _tell_nobody,
    ) -> None:
        """Prepare.

        Args:
            folders: by instance name, where an instance has several by `<instance> <which>`.
            interval_s: the pause between two rounds; it grows while rounds fail.
            patience: for the last round.
            tell: gets an instance's name and a sentence when an outage of S3 begins and when it is over.
        """
        super().__init__(daemon=True, name="mirror")
        self._interval_s = interval_s
        self._patience = patience or Patience()
        self._done = threading.Event()
        self._mirrors = [_Mirror(name, folder, tell) for name, folder in folders.items()]

    def run(self) -> None:
        """Mirror until told to finish; what fails is told and tried again, after longer and longer pauses."""
        pause_s = self._interval_s
        while not self._done.wait(pause_s):
            results = [each.sync() for each in self._mirrors]
            longer_s = min(2 * pause_s, MOST_PAUSES * self._interval_s)
            pause_s = self._interval_s if all(results) else longer_s

    def abandon(self, names: Collection[str]) -> None:
        """Bring nothing more of these folders to S3, from now on: their instances vanish."""
        for each in self._mirrors:
            if each.name.partition(" ")[0] in names:
                each.abandon()

    def finish(self) -> None:
        """Stop the rounds and do the last one, which takes everything.

        Raises:
            NotInS3Error: some of it did not get up before patience was over.
        """
        self._done.set()
        if self.is_alive():
            self.join()
        left = [error for each in self._mirrors if (error := each.finish(self._patience))]
        if left:
            raise left[0]


class _Mirror:
    """One folder being mirrored, and whether S3 takes it at present."""

    def __init__(self, name: str, folder: MirroredFolder, tell: Callable[[str, str], None]) -> None:
        self.name, self._folder, self._tell = name, folder, tell
        self._failing_since: float | None = None

    def abandon(self) -> None:
        """Do no more rounds, nor the last one."""
        self._folder.abandon()

    def sync(self) -> bool:
        """Do one round; return whether all of it worked."""
        try:
            self._folder.sync()
        except NotInS3Error as error:
            self._note(error)
            return False
        except OSError:
            log.exception("mirroring a folder of %s failed; it is tried again", self.name)
            return False
        self._note(None)
        return True

    def finish(self, patience: Patience) -> NotInS3Error | None:
        """Do the last round, again and again while patience lasts; return what did not get up."""

        def ask() -> None:
            try:
                self._folder.sync(final=True)
            except NotInS3Error as error:
                self._note(error)
                raise

        try:
            patience.ask(ask, what=f"last synchronisation of {self.name}")
        except NotInS3Error as error:
            self._tell(self.name, f"{error}; what is named here is lost")
            return error
        self._note(None)
        return None

    def _note(self, error: NotInS3Error | None) -> None:
        if error is not None and self._failing_since is None:
            self._failing_since = time.monotonic()
            self._tell(self.name, f"{error}; the job goes on, and it is tried again")
        if error is None and self._failing_since is not None:
            outage_s = time.monotonic() - self._failing_since
            self._failing_since = None
            self._tell(self.name, f"S3 has everything again, after {outage_s:.0f} s")


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
