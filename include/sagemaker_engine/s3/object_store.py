"""Buckets and objects on disk, for several processes and threads at once.

Layout under the root:

- ``index.sqlite``: the list of objects (module `index`).
- ``blobs/``: their bytes (module `blobs`).
- ``staging/``: files being written.
- ``reserve``: disk space that is freed to delete objects while the disk is full.

A write stages the bytes. One transaction then moves the blob into place and points the key at it. Last,
the replaced blob is removed. A process killed at any point leaves the old or the new object. It may also
leave a staged file or an unreferenced blob, which `ObjectStore.recover` removes.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from sagemaker_engine.s3.blobs import BlobFolder, StagedBlob
from sagemaker_engine.s3.buckets import BucketTable
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.index import Index
from sagemaker_engine.s3.listing import walk
from sagemaker_engine.s3.objects import (
    ALWAYS,
    CommonPrefix,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    WriteCondition,
)
from sagemaker_engine.s3.rows import find_object, save_object
from sagemaker_engine.s3.write_rules import check_key, replaced_blob
from sagemaker_engine.state.full_disk import Reserve, is_disk_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

log = logging.getLogger(__name__)

_ATTEMPTS = 100
_COPY_BYTES = 1 << 20
_T = TypeVar("_T")


class ObjectStore(BucketTable):
    """The store under `root`. It is cheap to construct: every process constructs its own.

    The store survives the death of any process at any moment. `clock` returns epoch seconds.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.blobs = BlobFolder(root)
        self.index = Index(root / "index.sqlite")
        self._reserve = Reserve(root / "reserve")
        self.clock = clock

    def put(
        self,
        bucket: str,
        key: str,
        source: BinaryIO | Path | bytes,
        *,
        attributes: ObjectAttributes | None = None,
        condition: WriteCondition = ALWAYS,
        link: bool = False,
    ) -> ObjectInfo:
        """Store `source` under `key`, replace any existing object, and return the new one.

        `source` is a binary stream, bytes, or the path of a file. With `link=True` a file is hard-linked if the
        file system allows hard links, and copied otherwise. The store owns a hard-linked file: the caller
        guarantees that nobody writes to the file afterwards.

        Raises:
            S3Error: NoSuchBucket, KeyTooLongError, PreconditionFailed; NoSuchKey, if `condition` requires an
                existing object.
        """
        self.check_writable(bucket, key, condition)
        with self._stage(source, link=link) as staged:
            return self.publish(bucket, key, staged, attributes=attributes, condition=condition)

    def publish(
        self,
        bucket: str,
        key: str,
        staged: StagedBlob,
        *,
        attributes: ObjectAttributes | None = None,
        condition: WriteCondition = ALWAYS,
        etag: str | None = None,
        parts: tuple[PartInfo, ...] = (),
        upload_id: str = "",
        also: Callable[[sqlite3.Connection], None] | None = None,
    ) -> ObjectInfo:
        """Point `key` at a staged blob and return the object; `also` runs in the same transaction.

        Without `etag`, the ETag is the MD5 of the bytes.

        Raises:
            S3Error: NoSuchBucket, NoSuchKey, PreconditionFailed.
        """
        info = ObjectInfo(
            bucket=bucket,
            key=key,
            size=staged.size,
            etag=etag or staged.digests.md5_hex,
            last_modified=self.clock(),
            blob=staged.name,
            attributes=attributes or ObjectAttributes(),
            parts=parts,
            upload_id=upload_id,
        )
        with self.index.write() as db:
            replaced = replaced_blob(db, bucket, key, condition)
            if also is not None:
                also(db)
            self.blobs.adopt(staged)
            save_object(db, info)
        self.blobs.drop([replaced] if replaced else [])
        return info

    def check_writable(self, bucket: str, key: str, condition: WriteCondition = ALWAYS) -> None:
        """Check key, bucket and condition of a write before the bytes arrive.

        `publish` checks bucket and condition again.

        Raises:
            S3Error: KeyTooLongError, NoSuchBucket, NoSuchKey, PreconditionFailed.
        """
        check_key(key)
        with self.index.read() as db:
            replaced_blob(db, bucket, key, condition)

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Return the object.

        Raises:
            S3Error: NoSuchBucket, NoSuchKey.
        """
        return self._find(bucket, key)

    def _find(self, bucket: str, key: str) -> ObjectInfo:
        with self.index.read() as db:
            return self._found(db, bucket, key)

    def _found(self, db: sqlite3.Connection, bucket: str, key: str) -> ObjectInfo:
        info = find_object(db, bucket, key)
        if info is None:
            self.head_bucket(bucket)
            raise S3Error("NoSuchKey", Key=key)
        return info

    def open(self, bucket: str, key: str) -> BinaryIO:
        """Return the object's bytes as an open file. A later overwrite does not change them."""
        return self.open_object(bucket, key)[1]

    def open_object(self, bucket: str, key: str) -> tuple[ObjectInfo, BinaryIO]:
        """Return the object and an open file of the same version."""
        return self._with_blob(bucket, key, lambda path: path.open("rb", buffering=0))

    def path(self, bucket: str, key: str) -> Path:
        """Return the path of the object's file, for reading only. The file is removed when the key is overwritten."""
        return self.blobs.path(self.head(bucket, key).blob)

    def link_to(self, bucket: str, key: str, target: Path) -> ObjectInfo:
        """Make `target` a hard link to the object's file, or a copy if a hard link is not possible.

        A hard link is not possible across file systems, or if the file system allows no further link. Writing to a
        hard link in place changes the stored object. The caller must therefore show `target` to jobs only in a
        read-only mount or as the lower layer of an overlay.
        """
        return self._with_blob(bucket, key, lambda path: _link_or_copy(path, target))[0]

    def list(
        self,
        bucket: str,
        prefix: str = "",
        delimiter: str | None = None,
        start_after: str | None = None,
    ) -> Iterator[ObjectInfo | CommonPrefix]:
        """Return objects and common prefixes in S3's order (UTF-8 bytes); see `listing.walk`."""
        self.head_bucket(bucket)
        return walk(self.index, bucket, prefix=prefix, delimiter=delimiter, start_after=start_after)

    def delete(self, bucket: str, key: str) -> bool:
        """Delete the object. Return whether it existed."""
        return bool(self.delete_many(bucket, [key]))

    def delete_many(self, bucket: str, keys: Iterable[str]) -> int:
        """Delete objects in one transaction and return how many existed. Deletion works on a full disk, too.

        Raises:
            S3Error: NoSuchBucket.
            OSError: A file operation fails, for a reason other than a full disk.
            sqlite3.Error: A write to the index fails, for a reason other than a full disk.
        """
        self.head_bucket(bucket)
        names = list(keys)
        try:
            gone = self._delete(bucket, names)
        except (OSError, sqlite3.Error) as error:
            if not is_disk_full(error):
                raise
            self._reserve.free()
            try:
                gone = self._delete(bucket, names)
                self.blobs.drop(gone)
                self.blobs.reaper.wait()
            finally:
                self._reserve.fill()
            return len(gone)
        self.blobs.drop(gone)
        return len(gone)

    def _delete(self, bucket: str, keys: Iterable[str]) -> Sequence[str]:
        """Remove the rows of objects and return the names of their blobs, now unreferenced."""
        gone: list[str] = []
        with self.index.write() as db:
            for key in keys:
                rows = db.execute(
                    "DELETE FROM objects WHERE bucket = ? AND key = ? RETURNING blob",
                    (bucket, key.encode()),
                ).fetchall()
                gone += [blob for (blob,) in rows]
        return gone

    def copy(
        self,
        source: tuple[str, str],
        target: tuple[str, str],
        *,
        attributes: ObjectAttributes | None = None,
        condition: WriteCondition = ALWAYS,
    ) -> ObjectInfo:
        """Copy the object `source` to `target` by hard link, with the same ETag.

        `source` and `target` are (bucket, key) pairs. `attributes` replace the source's attributes; None keeps
        them.

        Raises:
            S3Error: NoSuchBucket, NoSuchKey, KeyTooLongError, PreconditionFailed.
        """
        bucket, key = target
        check_key(key)
        with self.index.write() as db:
            old = self._found(db, *source)
            replaced = replaced_blob(db, bucket, key, condition)
            info = replace(
                old,
                bucket=bucket,
                key=key,
                last_modified=self.clock(),
                blob=self.blobs.link(old.blob),
                attributes=attributes or old.attributes,
                upload_id="",
            )
            save_object(db, info)
        self.blobs.drop([replaced] if replaced else [])
        return info

    def change_attributes(
        self, bucket: str, key: str, change: Callable[[ObjectAttributes], ObjectAttributes]
    ) -> ObjectInfo:
        """Replace the object's attributes by `change(attributes)`. Its bytes do not change.

        Raises:
            S3Error: NoSuchBucket, NoSuchKey.
        """
        with self.index.write() as db:
            old = self._found(db, bucket, key)
            info = replace(old, attributes=change(old.attributes))
            save_object(db, info)
        return info

    def recover(self) -> tuple[int, int]:
        """Remove the files of killed processes; return the numbers of (staging folders, unreferenced blobs).

        This is safe while other processes use the store. They move blobs into place only inside write
        transactions, and this method finds the unreferenced blobs inside a write transaction of its own.
        """
        folders = self.blobs.sweep_staging()
        with self.index.write() as db:
            used = {
                blob
                for (blob,) in db.execute(
                    "SELECT blob FROM objects UNION ALL SELECT blob FROM parts"
                )
            }
            orphans = [name for name in self.blobs.names() if name not in used]
        self.blobs.drop(orphans)
        self._reserve.fill()
        if folders or orphans:
            log.info(
                "removed %d abandoned staging folders and %d unreferenced blobs",
                folders,
                len(orphans),
            )
        return folders, len(orphans)

    def _stage(self, source: BinaryIO | Path | bytes, *, link: bool) -> StagedBlob:
        if isinstance(source, bytes):
            return self.blobs.stage(io.BytesIO(source), size=len(source))
        if not isinstance(source, Path):
            return self.blobs.stage(source)
        if link:
            return self.blobs.stage_link(source)
        with source.open("rb", buffering=0) as file:
            return self.blobs.stage(file, size=os.fstat(file.fileno()).st_size)

    def _with_blob(self, bucket: str, key: str, use: Callable[[Path], _T]) -> tuple[ObjectInfo, _T]:
        # An overwrite between the lookup and the use removes the file: look the object up again.
        for _ in range(_ATTEMPTS):
            info = self._find(bucket, key)
            try:
                return info, use(self.blobs.path(info.blob))
            except FileNotFoundError:
                log.debug("%s/%s was replaced while it was opened; retrying", bucket, key)
        raise S3Error("InternalError", f"the bytes of {bucket}/{key} are missing from the disk")


def _link_or_copy(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EMLINK, errno.EPERM}:
            raise
        with path.open("rb") as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
