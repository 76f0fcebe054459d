"""Preconditions of a write: a valid key, an existing bucket, and the writer's condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import MAX_KEY_BYTES

if TYPE_CHECKING:
    import sqlite3

    from sagemaker_engine.s3.objects import WriteCondition


def check_key(key: str) -> None:
    """Check the length of a key.

    Raises:
        S3Error: KeyTooLongError, if it has more than 1,024 bytes of UTF-8.
    """
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        raise S3Error("KeyTooLongError", Size=str(size), MaxSizeAllowed=str(MAX_KEY_BYTES))


def replaced_blob(
    db: sqlite3.Connection, bucket: str, key: str, condition: WriteCondition
) -> str | None:
    """Check bucket and condition, and return the key's current blob, or None for a new key.

    Raises:
        S3Error: NoSuchBucket, NoSuchKey, PreconditionFailed.
    """
    row = db.execute(
        "SELECT o.blob, o.etag FROM buckets b LEFT JOIN objects o"
        " ON o.bucket = b.name AND o.key = ? WHERE b.name = ?",
        (key.encode(), bucket),
    ).fetchone()
    if row is None:
        raise S3Error("NoSuchBucket", BucketName=bucket)
    blob, etag = row
    if condition.must_be_absent and blob is not None:
        raise S3Error("PreconditionFailed", Condition="If-None-Match")
    if condition.etag is not None and blob is None:
        raise S3Error("NoSuchKey", Key=key)
    if condition.etag not in {None, "*", etag}:
        raise S3Error("PreconditionFailed", Condition="If-Match")
    return None if blob is None else str(blob)
