"""Buckets of a store and their stored settings documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import BucketInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.s3.blobs import BlobFolder
    from sagemaker_engine.s3.index import Index

_BUCKET_NAME = re.compile(r"(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]")


class BucketTable:
    """Base class with the bucket operations of the object store. `ObjectStore` is its only subclass."""

    index: Index
    blobs: BlobFolder
    clock: Callable[[], float]

    def create_bucket(self, name: str, *, region: str = "us-east-1") -> bool:
        """Create the bucket. Return False if it exists already, in any region.

        Raises:
            S3Error: InvalidBucketName.
        """
        if not _BUCKET_NAME.fullmatch(name) or ".." in name:
            raise S3Error("InvalidBucketName", BucketName=name)
        with self.index.write() as db:
            row = (name, region, self.clock())
            return bool(db.execute("INSERT OR IGNORE INTO buckets VALUES (?, ?, ?)", row).rowcount)

    def head_bucket(self, name: str) -> BucketInfo:
        """Return the bucket.

        Raises:
            S3Error: NoSuchBucket.
        """
        with self.index.read() as db:
            row = db.execute("SELECT * FROM buckets WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise S3Error("NoSuchBucket", BucketName=name)
        return BucketInfo(name=row[0], region=row[1], created_at=row[2])

    def list_buckets(self) -> list[BucketInfo]:
        """Return all buckets in the order of their names."""
        with self.index.read() as db:
            rows = db.execute("SELECT * FROM buckets ORDER BY name").fetchall()
        return [BucketInfo(name=name, region=region, created_at=at) for name, region, at in rows]

    def delete_bucket(self, name: str) -> None:
        """Delete an empty bucket, its settings and its unfinished multipart uploads.

        Raises:
            S3Error: NoSuchBucket, BucketNotEmpty.
        """
        self.head_bucket(name)
        in_bucket = "upload IN (SELECT id FROM uploads WHERE bucket = ?)"
        with self.index.write() as db:
            if db.execute("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", (name,)).fetchone():
                raise S3Error("BucketNotEmpty", BucketName=name)
            blobs = db.execute(f"SELECT blob FROM parts WHERE {in_bucket}", (name,)).fetchall()  # noqa: S608 (fixed text)
            db.execute(f"DELETE FROM parts WHERE {in_bucket}", (name,))  # noqa: S608 (fixed text)
            db.execute("DELETE FROM uploads WHERE bucket = ?", (name,))
            db.execute("DELETE FROM bucket_settings WHERE bucket = ?", (name,))
            db.execute("DELETE FROM buckets WHERE name = ?", (name,))
        self.blobs.drop(blob for (blob,) in blobs)

    def bucket_setting(self, bucket: str, name: str) -> bytes | None:
        """Return the stored document of the bucket setting `name` (policy, tagging, ...), or None.

        Raises:
            S3Error: NoSuchBucket.
        """
        self.head_bucket(bucket)
        with self.index.read() as db:
            row = db.execute(
                "SELECT document FROM bucket_settings WHERE bucket = ? AND name = ?", (bucket, name)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def set_bucket_setting(self, bucket: str, name: str, document: bytes | None) -> None:
        """Store the document, or remove the stored one if `document` is None.

        Raises:
            S3Error: NoSuchBucket.
        """
        self.head_bucket(bucket)
        with self.index.write() as db:
            if document is None:
                db.execute(
                    "DELETE FROM bucket_settings WHERE bucket = ? AND name = ?", (bucket, name)
                )
            else:
                db.execute(
                    "INSERT OR REPLACE INTO bucket_settings VALUES (?, ?, ?)",
                    (bucket, name, document),
                )
