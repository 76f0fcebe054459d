"""Content of objects: immutable files with random names, staged first, then moved into place.

A blob under ``blobs/`` never changes, so it may be hard-linked into a job's channel, linked by a
server-side copy, and read while its key is overwritten. Files being written are under
``staging/<process>/``. Each process holds the lock on the ``lock`` file of its staging folder until it
exits: a folder whose lock is free belongs to a dead process and is removed by `BlobFolder.sweep_staging`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, Self

from sagemaker_engine.s3.checksums import Digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

log = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 19
_BLOB_MODE = 0o444
_MAKING_S = 60
"""Seconds for which a staging folder may keep its temporary dotted name before it counts as abandoned."""


class StagedBlob:
    """A blob that is complete on disk but not yet in the store.

    As a context manager it removes its file at the end, unless `BlobFolder.adopt` has moved the
    file into the store.
    """

    def __init__(self, path: Path, *, size: int, digests: Digests) -> None:
        self.path = path
        self.name = path.name
        self.size = size
        self.digests = digests

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove the staged file. After `BlobFolder.adopt` moved the file this does nothing."""
        self.path.unlink(missing_ok=True)


class BlobFolder:
    """The blobs of one store, and the staging folder of the current process."""

    def __init__(self, root: Path) -> None:
        self._blobs = root / "blobs"
        self._staging_root = root / "staging"
        self._pid = 0
        self._staging = self._staging_root
        self._lock_fd = -1
        self.reaper = Reaper()
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._staging_root.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return the path of the blob `name`."""
        return self._blobs / name[:2] / name

    def stage(
        self, source: BinaryIO, *, algorithms: Iterable[str] = (), size: int | None = None
    ) -> StagedBlob:
        """Write `source` to a new staged file and compute its digests (MD5 and `algorithms`) on the way.

        `size` in bytes is a hint for the buffer. Memory use is below 2 MiB for any size of object.
        """
        digests = Digests(algorithms)
        path = self._new_path()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _BLOB_MODE)
        try:
            written = 0
            for piece in pieces(source, size=size):
                digests.update(piece)
                _write_all(fd, piece)
                written += len(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return StagedBlob(path, size=written, digests=digests)

    def stage_link(self, file: Path) -> StagedBlob:
        """Stage `file` by hard link, or by copy if it is on another file system.

        The caller guarantees that nobody changes the file afterwards.
        """
        path = self._new_path()
        try:
            os.link(file, path)
        except OSError:
            with file.open("rb", buffering=0) as source:
                return self.stage(source, size=file.stat().st_size)
        digests = Digests()
        size = 0
        try:
            with path.open("rb", buffering=0) as source:
                for piece in pieces(source, size=path.stat().st_size):
                    digests.update(piece)
                    size += len(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedBlob(path, size=size, digests=digests)

    def stage_joined(self, names: list[str]) -> StagedBlob:
        """Stage one file that joins the blobs `names` in order; the kernel copies the bytes."""
        path = self._new_path()
        if len(names) == 1:
            os.link(self.path(names[0]), path)
            return StagedBlob(path, size=path.stat().st_size, digests=Digests())
        size = 0
        try:
            with path.open("xb", buffering=0) as target:
                for name in names:
                    size += _append(target, self.path(name))
                os.fchmod(target.fileno(), _BLOB_MODE)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedBlob(path, size=size, digests=Digests())

    def adopt(self, staged: StagedBlob) -> str:
        """Move a staged blob into place and return its name. Call this inside a write transaction."""
        target = self.path(staged.name)
        _making_folder(target, staged.path.rename)
        return staged.name

    def link(self, name: str) -> str:
        """Hard-link the blob `name` to a new name and return the new name. Call this inside a write transaction."""
        copy = secrets.token_hex(16)
        source = self.path(name)
        _making_folder(self.path(copy), lambda target: os.link(source, target))
        return copy

    def drop(self, names: Iterable[str]) -> None:
        """Remove blobs that no object refers to, in the background."""
        self.reaper.remove(self.path(name) for name in names)

    def names(self) -> Iterator[str]:
        """Yield the names of all blobs on disk."""
        for folder in os.scandir(self._blobs):
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    yield entry.name

    def sweep_staging(self) -> int:
        """Remove the staging folders of dead processes and return their number."""
        swept = 0
        for folder in self._staging_root.iterdir():
            if folder == self._staging or not _is_abandoned(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
        return swept

    def _new_path(self) -> Path:
        if self._pid != os.getpid():
            self._open_staging()
        return self._staging / secrets.token_hex(16)

    def _open_staging(self) -> None:
        """Create and lock this process's staging folder; a forked child gets its own."""
        making = self._staging_root / f".{os.getpid()}-{secrets.token_hex(4)}"
        making.mkdir()
        self._lock_fd = os.open(making / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        self._staging = making.rename(making.with_name(making.name[1:]))
        self._pid = os.getpid()


class Reaper:
    """Removes files in one thread, which runs only while there are files to remove.

    On a file system that discards freed blocks at once, removing one file that had reached the disk took 4 ms
    (measured). Without the thread every overwriting put would take that long. The thread is not a daemon, so a
    process that exits normally removes all files first. If the thread cannot remove a file, or the process is
    killed first, the file remains as an unreferenced blob, which `ObjectStore.recover` finds.
    """

    _waiting: list[Path]
    _is_running: bool

    def __init__(self) -> None:
        self._reset()

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files in the background. Missing files are ignored."""
        if self._pid != os.getpid():
            self._reset()  # After a fork the thread and its queue belong to the parent.
        with self._changed:
            self._waiting += paths
            if not self._waiting or self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._work, name="s3-reaper").start()
        except RuntimeError:  # The interpreter is shutting down and starts no more threads.
            self._work()

    def wait(self) -> None:
        """Wait until the thread has tried to remove all files that were passed to `remove` so far."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                batch, self._waiting = self._waiting, []
            for path in batch:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    log.warning("the unreferenced blob %s is not removed: %s", path, error)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting = []
        self._is_running = False


def pieces(source: BinaryIO, *, size: int | None = None) -> Iterator[memoryview]:
    """Yield the bytes of `source` in pieces of up to 512 KiB, each valid until the next is requested."""
    room = _BUFFER_BYTES if size is None else min(max(size, 1), _BUFFER_BYTES)
    readinto = getattr(source, "readinto", None)
    if readinto is None:
        while data := source.read(_BUFFER_BYTES):
            yield memoryview(data)
        return
    buffer = memoryview(bytearray(room))
    while count := readinto(buffer):
        yield buffer[:count]


def _making_folder(target: Path, place: Callable[[Path], object]) -> None:
    """Call `place(target)`; if the parent folder is missing, create it and call `place` again."""
    try:
        place(target)
    except FileNotFoundError:
        target.parent.mkdir(exist_ok=True)
        place(target)


def _write_all(fd: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(fd, piece) :]


def _append(target: BinaryIO, path: Path) -> int:
    with path.open("rb", buffering=0) as source:
        left = size = os.fstat(source.fileno()).st_size
        while left:
            copied = os.copy_file_range(source.fileno(), target.fileno(), left)
            if copied == 0:
                raise OSError(
                    f"{path} ended {left} bytes before its expected size while it was appended to an object"
                )
            left -= copied
    return size


def _is_abandoned(folder: Path) -> bool:
    """Return whether no living process holds the lock of the staging folder."""
    if folder.name.startswith(".") and time.time() - folder.stat().st_mtime < _MAKING_S:
        return False
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)
