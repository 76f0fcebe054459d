"""Uploads of finished shards by 4 threads and a bounded queue, while the next shards are still being written.

Several runs may write the same data set at once. So a shard is stored under its final name only with its
final content, which is the same in each run. A shard that may still be divided again or get other category
codes is uploaded as a draft. The name of a draft is `under-way/<digest>/<final name>`. The digest is the
SHA-256 of the draft's content, so no other run stores different content under the same name. If checksums
are switched off, a random id of the run replaces the digest.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Self

from trainyard.sharding.objects import download

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from trainyard.sharding.objects import Objects

log = logging.getLogger(__name__)

NUM_THREADS = 4
NUM_COPIES = 16
"""Objects that the store copies at a time; a copy moves no data through this process."""
MAX_WAITING = 8
UNDER_WAY = "under-way"
"""Folder of the drafts below a data set's prefix; the run that completes the data set deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One stored object.

    Attributes:
        name: its name below the prefix.
        sha256: hex digest; None without checksums.
        size: bytes.
        uploaded: whether this run uploaded it.
    """

    name: str
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
        self._own = uuid.uuid4().hex
        self._copies = ThreadPoolExecutor(NUM_COPIES, thread_name_prefix="copy")
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
        self._copies.shutdown(wait=True, cancel_futures=kind is not None)

    def send(
        self, path: Path, name: str, *, then_delete: bool = False, is_draft: bool = False
    ) -> Future[Sent]:
        """Queue a file for upload; block while the queue is full. Raises the error of an earlier upload.

        A draft is stored below `under-way/`; `Sent.name` is then its full name below the prefix.
        """
        self._raise_failed()
        self._slots.acquire()
        future = self._pool.submit(
            self._send, path, name, then_delete=then_delete, is_draft=is_draft
        )
        future.add_done_callback(lambda _: self._slots.release())
        self._waiting.append(future)
        return future

    def fetch(self, name: str, path: Path) -> None:
        """Download a draft that another object will replace; `wait` no longer returns the draft.

        Raises the errors of `Objects.open`.
        """
        download(self._objects, f"{self._prefix}/{name}", path)
        self._done.pop(name, None)

    def publish(self, draft: Sent) -> Future[Sent]:
        """Queue the copy of a draft to its final name."""
        future = self._copies.submit(self._publish, draft)
        self._waiting.append(future)
        return future

    def wait(self) -> list[Sent]:
        """Wait for all queued files; return all stored objects, one per name. Raises the error of a failed upload."""
        for future in self._waiting:
            future.result()
        self._waiting.clear()
        return list(self._done.values())

    def forget_drafts(self) -> None:
        """Wait for all queued files, then forget the drafts that are stored: `wait` no longer returns them.

        Other objects will replace these drafts.
        """
        self.wait()
        for name in [name for name in self._done if name.startswith(f"{UNDER_WAY}/")]:
            del self._done[name]

    def _raise_failed(self) -> None:
        still_waiting = []
        for future in self._waiting:
            if future.done():
                future.result()
            else:
                still_waiting.append(future)
        self._waiting = still_waiting

    def _send(self, path: Path, name: str, *, then_delete: bool, is_draft: bool) -> Sent:
        sha256, size = digest_file(path) if self._checksums else (None, path.stat().st_size)
        if is_draft:
            name = f"{UNDER_WAY}/{sha256 or self._own}/{name}"
        needed = not self._is_there(name, sha256=sha256, size=size, is_draft=is_draft)
        if needed:
            self._objects.put_file(path, f"{self._prefix}/{name}", sha256=sha256)
        if then_delete:
            path.unlink()
        self._done[name] = Sent(name=name, sha256=sha256, size=size, uploaded=needed)
        return self._done[name]

    def _publish(self, draft: Sent) -> Sent:
        sent = replace(draft, name=final_name(draft.name))
        if not self._is_there(sent.name, sha256=sent.sha256, size=sent.size):
            source, target = (f"{self._prefix}/{name}" for name in (draft.name, sent.name))
            self._objects.copy(source, target, sha256=sent.sha256)
        self._done.pop(draft.name, None)
        self._done[sent.name] = sent
        return sent

    def _is_there(
        self, name: str, *, sha256: str | None, size: int, is_draft: bool = False
    ) -> bool:
        """Return True if the store has this content under this name; always False without a digest.

        A final name is looked up only if an earlier run stored an object there. A draft with a digest is always
        looked up, because another run may have stored the same draft and may be copying it. With SSE-KMS, a second
        upload of the draft would change its ETag.
        """
        uri = f"{self._prefix}/{name}"
        if sha256 is None or not (is_draft or uri in self._existing):
            return False
        head = self._objects.head(uri)
        return head is not None and (head.size, head.sha256) == (size, sha256)


def final_name(draft: str) -> str:
    """Return the final name of a draft: the part behind `under-way/<digest>/`."""
    return draft.split("/", 2)[2]


def delete_drafts(objects: Objects, prefix: str) -> None:
    """Delete all drafts of a complete data set, including the drafts of other runs.

    The other runs do not need them either, because they will find the data set complete. An error is only
    logged, because the data set does not need the drafts.
    """
    try:
        objects.delete([each.uri for each in objects.list(f"{prefix}/{UNDER_WAY}/")])
    except Exception as error:  # noqa: BLE001  # the data set is complete
        log.warning("drafts of shards remain at %s/%s/; delete them: %s", prefix, UNDER_WAY, error)


def digest_file(path: Path) -> tuple[str, int]:
    """Return a file's SHA-256 as hex and its size in bytes."""
    with path.open("rb", buffering=0) as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return digest.hexdigest(), stream.tell()
