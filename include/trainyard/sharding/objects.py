"""Interface to object storage, and its implementation by a local folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from trainyard.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

S3_SCHEME = "s3://"
_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHead:
    """Metadata of an object.

    Attributes:
        uri: `s3://bucket/key`.
        size: bytes.
        etag: the store's ETag without quotes; it changes with the content.
        sha256: hex digest from the upload; None if unknown, as in some listings.
    """

    uri: str
    size: int
    etag: str
    sha256: str | None = None


class Objects(Protocol):
    """Thread-safe interface to object storage for sharding. Addresses have the form `s3://bucket/key`."""

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        """Store the file's content atomically, with its digest, if any, as metadata `sha256`."""

    def copy(self, uri: str, target: str, *, sha256: str | None) -> None:
        """Copy an object to the address `target`, without a download.

        The copy has the digest, if any, as metadata `sha256`.

        Raises:
            FileNotFoundError: there is no object at `uri`.
        """

    def delete(self, uris: Sequence[str]) -> None:
        """Delete these objects. A missing one is ignored."""

    def head(self, uri: str) -> ObjectHead | None:
        """Return the object's head with its `sha256` metadata; None if there is no such object."""

    def list(self, prefix: str) -> Iterator[ObjectHead]:
        """Yield the objects whose address starts with the prefix, in key order."""

    def open(self, uri: str, *, etag: str | None = None) -> BinaryIO:
        """Return a stream of the object's content; the caller closes it.

        Args:
            uri: the object's address.
            etag: ETag of the version to read, from its head or the listing; None reads any version.

        Raises:
            FileNotFoundError: there is no such object.
            DataError: the object no longer has that version.
        """


@dataclass(frozen=True, slots=True)
class LocalObjects:
    """Store of objects as files below a folder: `s3://bucket/key` is `root/bucket/key`.

    `put_file` hard-links the file if the filesystem can, so the caller must not change it afterwards.
    """

    root: Path

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        """Store the file. Its digest, if any, is stored in a separate file below `.metadata` in the root."""
        target, note = self._path(uri), self._note(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        note.parent.mkdir(parents=True, exist_ok=True)
        # Names of this put alone: two processes may store the same object at the same time.
        arriving = note.with_name(f"{note.name}.{uuid.uuid4().hex}")
        try:
            os.link(path, arriving)
        except OSError:
            shutil.copyfile(path, arriving)
        note.unlink(missing_ok=True)
        arriving.replace(target)
        arriving.unlink(missing_ok=True)  # it stays if both are links to one file
        if sha256 is not None:
            arriving.write_text(json.dumps({"sha256": sha256}))
            arriving.replace(note)

    def copy(self, uri: str, target: str, *, sha256: str | None) -> None:
        """Store the file also at `target`. Raises FileNotFoundError if there is no file at `uri`."""
        self.put_file(self._path(uri), target, sha256=sha256)

    def delete(self, uris: Sequence[str]) -> None:
        """Delete the files and their digests."""
        for uri in uris:
            self._path(uri).unlink(missing_ok=True)
            self._note(uri).unlink(missing_ok=True)

    def head(self, uri: str) -> ObjectHead | None:
        """Return the object's head; None if there is no such object.

        The ETag is the SHA-256 that was stored with the object. If none was stored, the ETag is derived from the
        size and the modification time.
        """
        path, note = self._path(uri), self._note(uri)
        if not path.is_file():
            return None
        stat = path.stat()
        try:
            sha256 = json.loads(note.read_text())["sha256"]
        except FileNotFoundError:
            sha256 = None
        etag = sha256 or hashlib.sha256(f"{stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
        return ObjectHead(uri=uri, size=stat.st_size, etag=etag, sha256=sha256)

    def list(self, prefix: str) -> Iterator[ObjectHead]:
        """Yield the heads of the objects whose address starts with the prefix, in key order."""
        bucket = prefix.removeprefix(S3_SCHEME).split("/", 1)[0]
        folder = self.root / bucket
        files = (path for path in folder.rglob("*") if path.is_file())
        for name in sorted(path.relative_to(self.root).as_posix() for path in files):
            if (S3_SCHEME + name).startswith(prefix):
                head = self.head(S3_SCHEME + name)
                if head is not None:
                    yield head

    def open(self, uri: str, *, etag: str | None = None) -> BinaryIO:
        """Open the file for reading.

        Raises:
            DataError: `etag` is given, and the object has another ETag or does not exist.
        """  # noqa: DOC501 - the named function returns a DataError
        if etag is not None and ((head := self.head(uri)) is None or head.etag != etag):
            raise changed_object(uri, etag)
        return self._path(uri).open("rb")

    def _path(self, uri: str) -> Path:
        return self.root / uri.removeprefix(S3_SCHEME)

    def _note(self, uri: str) -> Path:
        return self.root / ".metadata" / (uri.removeprefix(S3_SCHEME) + ".json")


def download(objects: Objects, uri: str, path: Path, *, etag: str | None = None) -> None:
    """Copy an object to the file `path`, and create the folder of the file if it is missing.

    Raises the errors of `Objects.open`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with objects.open(uri, etag=etag) as stream, path.open("wb") as copy:
        shutil.copyfileobj(stream, copy, _PIECE_BYTES)


def changed_object(uri: str, etag: str) -> DataError:
    """Return the error for an object that was replaced or deleted since it was listed."""
    return DataError(
        "an object of the source has changed since it was listed",
        job_name="sharding",
        where=uri,
        got="another version, or no object",
        allowed=f"the version with ETag {etag}",
        next_step="make sure that no process writes to the source, then start again",
    )
