"""Uploads of finished shards while the next ones are written, by 4 threads and a bounded queue."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Self

from trainyard.sharding.objects import download

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from trainyard.sharding.objects import Objects

NUM_THREADS = 4
MAX_WAITING = 8
_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One stored object: its SHA-256 (None without checksums), its size in bytes, and whether it was uploaded now."""

    sha256: str | None
    size: int
    uploaded: bool


class Uploads:
    """Uploader of files below a prefix. As a context manager, it waits at the end for uploads in progress.

    Args:
        objects: store of the objects.
        prefix: address below which files are stored by their relative names.
        existing: addresses of objects of an earlier, interrupted run. They are uploaded again only if they differ.
        checksums: whether to calculate digests. Without them everything is uploaded.
    """

    def __init__(
        self, objects: Objects, prefix: str, *, existing: frozenset[str], checksums: bool = True
    ) -> None:
        self._checksums = checksums
        self._objects, self._prefix, self._existing = objects, prefix, existing
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="upload")
        self._slots = BoundedSemaphore(MAX_WAITING)
        self._waiting: list[Future[Sent]] = []
        self._done: dict[str, Sent] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def send(self, path: Path, name: str, *, then_delete: bool = False) -> Future[Sent]:
        """Queue a file for upload; block while the queue is full. Raises the error of an earlier upload."""
        self._raise_failed()
        self._slots.acquire()
        future = self._pool.submit(self._send, path, name, then_delete=then_delete)
        future.add_done_callback(lambda _: self._slots.release())
        self._waiting.append(future)
        return future

    def fetch(self, name: str, path: Path) -> None:
        """Copy a stored object back to a file. Raises the errors of `Objects.open`."""
        download(self._objects, f"{self._prefix}/{name}", path)

    def wait(self) -> list[Sent]:
        """Wait for all queued files, and return all stored objects, one per name. Raises the error of an upload."""
        for future in self._waiting:
            future.result()
        self._waiting.clear()
        return list(self._done.values())

    def _raise_failed(self) -> None:
        still_waiting = []
        for future in self._waiting:
            if future.done():
                future.result()
            else:
                still_waiting.append(future)
        self._waiting = still_waiting

    def _send(self, path: Path, name: str, *, then_delete: bool) -> Sent:
        sha256, size = digest_file(path) if self._checksums else (None, path.stat().st_size)
        uri = f"{self._prefix}/{name}"
        is_known = self._checksums and uri in self._existing
        head = self._objects.head(uri) if is_known else None
        needed = head is None or head.size != size or head.sha256 != sha256
        if needed:
            self._objects.put_file(path, uri, sha256=sha256)
        if then_delete:
            path.unlink()
        self._done[name] = Sent(sha256=sha256, size=size, uploaded=needed)
        return self._done[name]


def digest_file(path: Path) -> tuple[str, int]:
    """Return a file's SHA-256 as hex and its size in bytes."""
    digest, size = hashlib.sha256(), 0
    piece = bytearray(_PIECE_BYTES)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(piece):
            digest.update(memoryview(piece)[:count])
            size += count
    return digest.hexdigest(), size
