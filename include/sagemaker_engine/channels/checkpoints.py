"""Mirrors of instance folders in S3: restored at the start, uploaded while the job runs.

As on SageMaker, each instance downloads the content of an S3 prefix at the start. From then on new and changed files
are uploaded continuously, and deletions are applied in S3. All instances share one prefix.

There is no coordination with the writer: S3 may receive part of a file that is being written, or delete an old
checkpoint before it has the new one. Each upload is atomic, as PutObject is: if it is interrupted, the previous object
remains.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sagemaker_engine.channels.bandwidth import Line
from sagemaker_engine.channels.container_files import (
    ContainerFiles,
    FileVersion,
    OddFileError,
    Scan,
    printable,
)
from sagemaker_engine.channels.listing import ChannelFile, check_paths, list_objects
from sagemaker_engine.channels.placement import place_file
from sagemaker_engine.channels.retrier import Retrier, is_transient
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.channels.locations import S3Location
    from sagemaker_engine.s3.object_store import ObjectStore

log = logging.getLogger(__name__)

REST_S = 0.5
"""Minimum seconds between two uploads of a changing file."""
CHUNK_BYTES = 1 << 17
"""Bytes of a file that are read at a time."""
LOOK_S = 0.1
"""Seconds between two checks for deletions during an upload."""
MOST_PAUSES = 20
"""Longest pause between two synchronizations while they fail, as a multiple of the normal pause."""
MOST_NAMES = 5


class NotInS3Error(S3Error):
    """S3 rejected some changes of a mirrored folder.

    `code` is the code of the first transient error, or of the first error if no error is transient.
    """

    def __init__(self, location: S3Location, refused: Mapping[str, S3Error]) -> None:
        worst = next(filter(is_transient, refused.values()), next(iter(refused.values())))
        self.names = tuple(refused)
        named = ", ".join(repr(name) for name in self.names[:MOST_NAMES])
        rest = f" and {len(refused) - MOST_NAMES} more" if len(refused) > MOST_NAMES else ""
        cause = f"{worst.code} ({worst.status}): {worst.message}"
        super().__init__(
            worst.code, f"cannot synchronize {named}{rest} with {location.uri}: {cause}"
        )

    def __str__(self) -> str:
        return self.message


class _CutError(Exception):
    """The current upload was aborted without effect.

    The host or the file no longer exists, or the file has become shorter.
    """


class MirroredFolder:
    """One instance's folder and its S3 prefix. Not thread-safe, except for `abandon`."""

    def __init__(
        self,
        folder: Path,
        location: S3Location,
        objects: ObjectStore,
        *,
        deletes: bool = True,
        seen_at: str | None = None,
        files: ContainerFiles | None = None,
        uplink: Line | None = None,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        """Create the folder.

        Args:
            folder: Folder of the instance on this machine.
            location: S3 prefix.
            objects: Object store with the prefix.
            deletes: Whether to delete the objects of deleted files.
            seen_at: Path of the folder inside the instance; None if it is the same as `folder`.
            files: Folders of the instance, to resolve links; None if the instance has only this folder.
            uplink: Upload bandwidth of the host, shared by all folders of the host; None if it is not limited.
            warn: Logs a sentence, once per entry that cannot be uploaded.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._location = location
        self._objects = objects
        self._deletes = deletes
        self._path = str(folder) if seen_at is None else seen_at
        self._files = files or ContainerFiles.of_folder(folder)
        self._uplink = uplink or Line()
        self._warn = warn
        self._uploaded: dict[str, FileVersion] = {}
        self._next_at: dict[str, float] = {}
        """Earliest time.monotonic() of the next upload, by file."""
        self._warned: dict[str, str] = {}
        self._looked_at = 0.0
        self._is_abandoned = threading.Event()

    def abandon(self) -> None:
        """Stop all uploads, because the instance is lost. An upload in progress does not complete."""
        self._is_abandoned.set()

    @property
    def is_abandoned(self) -> bool:
        """Return whether the instance is lost."""
        return self._is_abandoned.is_set()

    def restore(self) -> int:
        """Copy every object whose key begins with the prefix; return the number of bytes.

        The copies are made in the folder. They are not links, because a script may append to its own checkpoint.
        A prefix without a final slash also matches the keys of other folders: `.../run-1` matches the object
        `.../run-16/step-2`. This object is copied to `6/step-2`.

        Raises:
            InputDataError: The bucket does not exist, an object cannot be read, or two objects need the same path.
        """
        files = [
            ChannelFile(
                bucket=each.bucket,
                key=each.key,
                path=each.key.removeprefix(self._location.key).lstrip("/"),
            )
            for each in list_objects(self._location, self._objects)
        ]
        check_paths(files)
        num_bytes = 0
        for file in files:
            target = self._folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            num_bytes += place_file(file, target, self._objects, link=False)
        own = {file.path for file in files if self._location.join(file.path).key == file.key}
        found = self._scan().files
        self._uploaded = {name: version for name, version in found.items() if name in own}
        return num_bytes

    def sync(self, *, final: bool = False) -> int:
        """Apply deletions in S3, then upload new and changed files; return the number of changes.

        Deletions are also applied during an upload. After the upload of a file, at least `REST_S` seconds pass
        until the same file is uploaded again. `final=True` skips these pauses; use it when all writers have ended.

        Raises:
            NotInS3Error: S3 rejected some changes; the next call tries them again.
        """
        refused: dict[str, S3Error] = {}
        found = self._scan().files
        changes = self._mirror_deletions(found, refused)
        for name, version in found.items():
            if self.is_abandoned:
                return changes
            rests = not final and time.monotonic() < self._next_at.get(name, 0.0)
            if self._uploaded.get(name) != version and not rests:
                try:
                    changes += self._upload(name)
                except S3Error as error:
                    refused[name] = error
                except _CutError:
                    continue
        if refused:
            raise NotInS3Error(self._location, refused)
        return changes

    def _scan(self) -> Scan:
        found = self._files.scan(self._path)
        for name, reason in found.odd.items():
            self._warn_of(name, reason)
        return found

    def _warn_of(self, name: str, reason: str) -> None:
        if self._warned.get(name) != reason:
            self._warned[name] = reason
            self._warn(f"{printable(f'{self._path}/{name}')} is not uploaded: it {reason}")

    def _mirror_deletions(
        self, found: Mapping[str, FileVersion], refused: dict[str, S3Error]
    ) -> int:
        """Delete the objects of files that are missing in the scan `found`; return the number of deletions.

        Rejected deletions are added to `refused`, and the next call retries them. A scan is not a snapshot
        and can miss a file that is being replaced. So before the deletion, the method checks again that the
        file does not exist.
        """
        changes = 0
        for name in sorted(self._uploaded.keys() - found.keys()):
            if self.is_abandoned:
                break
            if self._files.exists(f"{self._path}/{name}"):
                continue
            try:
                changes += self._delete(name)
            except S3Error as error:
                refused[name] = error
        return changes

    def _delete(self, name: str) -> int:
        if self._deletes:
            self._objects.delete(self._location.bucket, self._location.join(name).key)
        del self._uploaded[name]
        self._next_at.pop(name, None)
        return int(self._deletes)

    def _upload(self, name: str) -> int:
        """Upload the current content of a file; return the number of changes, 0 or 1.

        Raises:
            S3Error: S3 rejects the upload.
            _CutError: The host or the file was lost during the upload.
        """
        began = time.monotonic()
        path = f"{self._path}/{name}"
        try:
            with self._files.open(path) as file:
                source = _Sent(file, self._uplink, lambda: self._check_sending(path))
                key = self._location.join(name).key
                self._objects.put(self._location.bucket, key, cast("BinaryIO", source))
        except FileNotFoundError:
            return 0  # The next round deletes the object.
        except OddFileError as error:
            self._warn_of(name, str(error))
            return 0
        except PermissionError as error:
            self._warn_of(name, f"cannot be read: {error.strerror}")
            return 0
        except OSError as error:
            raise S3Error("InternalError", f"{name} cannot be uploaded: {error}") from error
        self._uploaded[name] = source.version
        now = time.monotonic()
        self._next_at[name] = now + max(REST_S, now - began)
        return 1

    def _check_sending(self, path: str) -> None:
        """Delete the objects of files that no longer exist on the host.

        The upload of the file `path` calls this method repeatedly. Calls within `LOOK_S` seconds of the
        last scan do not scan the folder again.

        Raises:
            _CutError: The host, or the file being uploaded, no longer exists.
        """
        now = time.monotonic()
        if self.is_abandoned:
            raise _CutError
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._mirror_deletions(self._scan().files, {})
        if not self._files.exists(path):
            raise _CutError


class _Sent(io.RawIOBase):
    """Stream of a file's bytes at its host's bandwidth, up to the size of the file when the stream was created."""

    def __init__(self, file: BinaryIO, line: Line, check: Callable[[], None]) -> None:
        super().__init__()
        self._file, self._line, self._check = file, line, check
        self.version = FileVersion.of(os.fstat(file.fileno()))
        self._left = self.version.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next part, and wait as long as its upload takes.

        Raises:
            _CutError: The host or the file no longer exists, or the file has become shorter.
        """
        count = self._file.readinto(memoryview(buffer)[: min(self._left, CHUNK_BYTES)])  # type: ignore[attr-defined]  # unbuffered
        if not count and self._left:
            raise _CutError
        self._line.carry(count, meanwhile=self._check)
        self._check()
        self._left -= count
        return int(count)


class Mirrors:
    """The mirrored folders of a job, with one thread per host, until `finish`."""

    def __init__(
        self,
        folders: Mapping[str, MirroredFolder] | None = None,
        *,
        interval_s: float = 0.5,
        retrier: Retrier | None = None,
        warn: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Prepare the threads.

        Args:
            folders: By instance name, or by `<instance> <name>` if an instance has several.
            interval_s: Pause between two synchronizations in seconds; it grows while they fail.
            retrier: Retry policy of the last synchronization.
            warn: Logs a sentence for an instance, when an outage of S3 begins and when it ends.
        """
        by_host: dict[str, list[_Mirror]] = {}
        for name, folder in (folders or {}).items():
            host = name.partition(" ")[0]
            by_host.setdefault(host, []).append(_Mirror(host, folder, warn))
        self._hosts = {
            host: _HostMirror(host, mirrors, interval_s, retrier or Retrier())
            for host, mirrors in by_host.items()
        }

    def start(self) -> None:
        """Start the threads."""
        for each in self._hosts.values():
            each.start()

    def abandon(self, names: Collection[str]) -> None:
        """Stop all uploads of these hosts at once, because the hosts are lost."""
        for name, each in self._hosts.items():
            if name in names:
                each.abandon()

    def finish(self, *, gone_at: Mapping[str, float] | None = None) -> None:
        """Synchronize once more, to upload everything, and end the threads.

        Args:
            gone_at: For each lost host, the value of `time.monotonic()` at its loss. Files of the host that are not
                uploaded by then are lost. For all other hosts, the method waits until everything is uploaded or the
                time for retries is over.

        Raises:
            NotInS3Error: S3 rejected some changes until the time for retries was over.
        """
        for each in self._hosts.values():
            each.end()
        for name, each in self._hosts.items():
            if gone_at is not None and name in gone_at:
                each.join(max(0.0, gone_at[name] - time.monotonic()))
                each.abandon()
            each.join()
        left = [error for each in self._hosts.values() for error in each.left]
        if left:
            raise left[0]


class _HostMirror(threading.Thread):
    """Thread that uploads the folders of one host repeatedly until `end`, and then once more."""

    def __init__(
        self, host: str, mirrors: Sequence[_Mirror], interval_s: float, retrier: Retrier
    ) -> None:
        super().__init__(daemon=True, name=f"mirror-{host}")
        self._mirrors = mirrors
        self._interval_s = interval_s
        self._retrier = replace(retrier, must_end=lambda: self._is_abandoned)
        self._ended = threading.Event()
        self._is_abandoned = False
        self.left: list[NotInS3Error] = []
        """Errors of the last synchronization, with the files that were not uploaded."""

    def run(self) -> None:
        """Synchronize until `end`, and once more. Errors are logged; the pauses grow while synchronizations fail."""
        pause_s = self._interval_s
        while not self._ended.wait(pause_s):
            results = [each.sync() for each in self._mirrors]
            longer_s = min(2 * pause_s, MOST_PAUSES * self._interval_s)
            pause_s = self._interval_s if all(results) else longer_s
        self.left = [error for each in self._mirrors if (error := each.finish(self._retrier))]

    def abandon(self) -> None:
        """Stop all uploads."""
        self._is_abandoned = True
        for each in self._mirrors:
            each.abandon()

    def end(self) -> None:
        """Request the last synchronization. If the thread was never started, start it now."""
        self._ended.set()
        if self.ident is None:
            self.start()


class _Mirror:
    """One mirrored folder, and whether S3 currently rejects its uploads."""

    def __init__(self, name: str, folder: MirroredFolder, warn: Callable[[str, str], None]) -> None:
        self.name, self._folder, self._warn = name, folder, warn
        self._failing_since: float | None = None

    def abandon(self) -> None:
        """Stop all uploads."""
        self._folder.abandon()

    def sync(self) -> bool:
        """Synchronize once; return whether everything succeeded."""
        try:
            self._folder.sync()
        except NotInS3Error as error:
            self._note(error)
            return False
        except OSError:
            log.exception("mirroring a folder of %s failed; it is retried", self.name)
            return False
        self._note(None)
        return True

    def finish(self, retrier: Retrier) -> NotInS3Error | None:
        """Synchronize a last time, with retries; return the error if some files were not uploaded."""

        def ask() -> None:
            try:
                self._folder.sync(final=True)
            except NotInS3Error as error:
                self._note(error)
                raise

        try:
            retrier.ask(ask, what=f"last synchronization of {self.name}")
        except NotInS3Error as error:
            if self._folder.is_abandoned:
                return None
            self._warn(self.name, f"{error}; these changes are lost")
            return error
        self._note(None)
        return None

    def _note(self, error: NotInS3Error | None) -> None:
        if error is not None and self._failing_since is None:
            self._failing_since = time.monotonic()
            self._warn(self.name, f"{error}; the job continues, and the engine retries")
        if error is None and self._failing_since is not None:
            outage_s = time.monotonic() - self._failing_since
            self._failing_since = None
            self._warn(self.name, f"S3 accepts all changes again, after {outage_s:.0f} s")
