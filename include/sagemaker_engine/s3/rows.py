"""Conversion between the store's values and the rows of the index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sagemaker_engine.s3.objects import ObjectAttributes, ObjectInfo, PartInfo, UploadInfo

if TYPE_CHECKING:
    import sqlite3

OBJECT_COLUMNS = "bucket, key, blob, size, etag, modified_at, attributes, multipart"
UPLOAD_COLUMNS = "id, bucket, key, started_at, attributes, checksum_algorithm"
PART_COLUMNS = "number, blob, size, etag, modified_at, checksums"


def object_info(row: tuple[Any, ...]) -> ObjectInfo:
    """Return the object of a row with the columns `OBJECT_COLUMNS`."""
    bucket, key, blob, size, etag, modified_at, attributes, multipart = row
    upload_id, parts = json.loads(multipart) if multipart else ("", [])
    return ObjectInfo(
        bucket=bucket,
        key=key.decode(),
        blob=blob,
        size=size,
        etag=etag,
        last_modified=modified_at,
        attributes=ObjectAttributes.from_json(attributes),
        parts=tuple(
            PartInfo(number=number, size=part_size, etag="", checksums=checksums)
            for number, part_size, checksums in parts
        ),
        upload_id=upload_id,
    )


def find_object(db: sqlite3.Connection, bucket: str, key: str) -> ObjectInfo | None:
    """Return the object, or None if the key does not exist."""
    query = f"SELECT {OBJECT_COLUMNS} FROM objects WHERE bucket = ? AND key = ?"  # noqa: S608 (fixed text)
    row = db.execute(query, (bucket, key.encode())).fetchone()
    return None if row is None else object_info(row)


def save_object(db: sqlite3.Connection, info: ObjectInfo) -> None:
    """Insert `info`, or replace the object under its key."""
    parts = [(part.number, part.size, dict(part.checksums)) for part in info.parts]
    db.execute(
        "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            info.bucket,
            info.key.encode(),
            info.blob,
            info.size,
            info.etag,
            info.last_modified,
            info.attributes.to_json(),
            json.dumps([info.upload_id, parts]) if parts else "",
        ),
    )


def upload_info(row: tuple[Any, ...]) -> UploadInfo:
    """Return the upload of a row with the columns `UPLOAD_COLUMNS`."""
    identity, bucket, key, started_at, attributes, algorithm = row
    return UploadInfo(
        id=identity,
        bucket=bucket,
        key=key.decode(),
        started_at=started_at,
        attributes=ObjectAttributes.from_json(attributes),
        checksum_algorithm=algorithm,
    )


def part_info(row: tuple[Any, ...]) -> PartInfo:
    """Return one part of a multipart upload, read from a row with the columns `PART_COLUMNS`."""
    number, blob, size, etag, modified_at, checksums = row
    return PartInfo(
        number=number,
        blob=blob,
        size=size,
        etag=etag,
        modified_at=modified_at,
        checksums=json.loads(checksums),
    )
