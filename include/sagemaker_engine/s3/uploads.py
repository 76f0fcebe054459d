"""Multipart uploads of the store: each part is a separate blob until the upload is completed."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from sagemaker_engine.s3.checksums import multipart_etag
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import ALWAYS, ObjectAttributes, PartInfo, UploadInfo
from sagemaker_engine.s3.rows import PART_COLUMNS, UPLOAD_COLUMNS, part_info, upload_info
from sagemaker_engine.s3.write_rules import check_key

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from sagemaker_engine.s3.blobs import StagedBlob
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import ObjectInfo, WriteCondition


def create_upload(
    store: ObjectStore,
    bucket: str,
    key: str,
    *,
    attributes: ObjectAttributes,
    checksum_algorithm: str = "",
) -> UploadInfo:
    """Create an upload and return it.

    Raises:
        S3Error: NoSuchBucket, KeyTooLongError.
    """
    check_key(key)
    store.head_bucket(bucket)
    upload = UploadInfo(
        id=secrets.token_urlsafe(48),
        bucket=bucket,
        key=key,
        started_at=store.clock(),
        attributes=attributes,
        checksum_algorithm=checksum_algorithm,
    )
    row = (
        upload.id,
        bucket,
        key.encode(),
        upload.started_at,
        attributes.to_json(),
        checksum_algorithm,
    )
    with store.index.write() as db:
        db.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?)", row)
    return upload


def find_upload(store: ObjectStore, bucket: str, key: str, upload_id: str) -> UploadInfo:
    """Return the upload.

    Raises:
        S3Error: NoSuchBucket, NoSuchUpload.
    """
    store.head_bucket(bucket)
    with store.index.read() as db:
        return _find(db, bucket, key, upload_id)


def add_part(
    store: ObjectStore,
    upload: UploadInfo,
    number: int,
    staged: StagedBlob,
    *,
    checksums: Mapping[str, str],
) -> PartInfo:
    """Store `staged` as part `number` of the upload and return the part.

    An earlier part with this number is replaced.

    Raises:
        S3Error: NoSuchUpload.
    """
    part = PartInfo(
        number=number,
        size=staged.size,
        etag=staged.digests.md5_hex,
        blob=staged.name,
        modified_at=store.clock(),
        checksums=checksums,
    )
    with store.index.write() as db:
        _find(db, upload.bucket, upload.key, upload.id)
        replaced = db.execute(
            "SELECT blob FROM parts WHERE upload = ? AND number = ?", (upload.id, number)
        ).fetchall()
        store.blobs.adopt(staged)
        db.execute(
            "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                upload.id,
                number,
                part.blob,
                part.size,
                part.etag,
                part.modified_at,
                json.dumps(dict(checksums)),
            ),
        )
    store.blobs.drop(blob for (blob,) in replaced)
    return part


def list_parts(store: ObjectStore, upload: UploadInfo, *, after: int = 0) -> list[PartInfo]:
    """Return the upload's parts with numbers above `after`, in order."""
    query = f"SELECT {PART_COLUMNS} FROM parts WHERE upload = ? AND number > ? ORDER BY number"  # noqa: S608 (fixed text)
    with store.index.read() as db:
        return [part_info(row) for row in db.execute(query, (upload.id, after))]


def list_uploads(store: ObjectStore, bucket: str) -> list[UploadInfo]:
    """Return the unfinished uploads of the bucket, ordered by key, then by id."""
    store.head_bucket(bucket)
    query = f"SELECT {UPLOAD_COLUMNS} FROM uploads WHERE bucket = ? ORDER BY key, id"  # noqa: S608 (fixed text)
    with store.index.read() as db:
        return [upload_info(row) for row in db.execute(query, (bucket,))]


def complete_upload(
    store: ObjectStore,
    upload: UploadInfo,
    parts: list[PartInfo],
    *,
    checksums: Mapping[str, str],
    condition: WriteCondition = ALWAYS,
) -> ObjectInfo:
    """Join `parts` into the object and remove the upload, in one transaction.

    Raises:
        S3Error: NoSuchUpload, NoSuchBucket, NoSuchKey, PreconditionFailed.
    """

    def end(db: sqlite3.Connection) -> None:
        _find(db, upload.bucket, upload.key, upload.id)
        db.execute("DELETE FROM parts WHERE upload = ?", (upload.id,))
        db.execute("DELETE FROM uploads WHERE id = ?", (upload.id,))

    unused = [part.blob for part in list_parts(store, upload)]
    with store.blobs.stage_joined([part.blob for part in parts]) as staged:
        info = store.publish(
            upload.bucket,
            upload.key,
            staged,
            attributes=replace(upload.attributes, checksums=checksums),
            condition=condition,
            etag=multipart_etag([part.etag for part in parts]),
            parts=tuple(parts),
            upload_id=upload.id,
            also=end,
        )
    store.blobs.drop(unused)
    return info


def abort_upload(store: ObjectStore, upload: UploadInfo) -> None:
    """Remove the upload and its parts.

    Raises:
        S3Error: NoSuchUpload, if the upload has been completed or aborted.
    """
    with store.index.write() as db:
        _find(db, upload.bucket, upload.key, upload.id)
        rows = db.execute("DELETE FROM parts WHERE upload = ? RETURNING blob", (upload.id,))
        blobs = [blob for (blob,) in rows.fetchall()]
        db.execute("DELETE FROM uploads WHERE id = ?", (upload.id,))
    store.blobs.drop(blobs)


def _find(db: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> UploadInfo:
    query = f"SELECT {UPLOAD_COLUMNS} FROM uploads WHERE id = ? AND bucket = ? AND key = ?"  # noqa: S608 (fixed text)
    row = db.execute(query, (upload_id, bucket, key.encode())).fetchone()
    if row is None:
        raise S3Error("NoSuchUpload", UploadId=upload_id)
    return upload_info(row)
