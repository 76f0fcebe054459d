"""Objects in S3 by their `s3://` address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from distributed_training.hooks.jobs import typed
from include.errors import Finding, SpecError

if TYPE_CHECKING:
    from pathlib import Path

_ABSENT = {"404", "NoSuchKey", "NotFound"}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """A bucket and a key."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the address of `s3://bucket/key`.

        Raises:
            SpecError: the text is no such address.
        """
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not uri.startswith("s3://") or not bucket:
            raise SpecError(
                [Finding(where="S3 address", what="is none", got=uri, allowed="s3://bucket/key")]
            )
        return cls(bucket=bucket, key=key)


class S3Objects:
    """Reads and writes whole objects."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def exists(self, uri: str) -> bool:
        """Return whether there is an object at this address."""
        at = S3Address.parse(uri)
        try:
            self._client.head_object(Bucket=at.bucket, Key=at.key)
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                return False
            raise typed(error, where=uri) from error
        return True

    def read(self, uri: str) -> bytes:
        """Return the object's bytes."""
        at = S3Address.parse(uri)
        try:
            content: bytes = self._client.get_object(Bucket=at.bucket, Key=at.key)["Body"].read()
        except ClientError as error:
            raise typed(error, where=uri) from error
        return content

    def write(self, uri: str, content: bytes, *, content_type: str) -> None:
        """Store the bytes at this address."""
        at = S3Address.parse(uri)
        try:
            self._client.put_object(
                Bucket=at.bucket, Key=at.key, Body=content, ContentType=content_type
            )
        except ClientError as error:
            raise typed(error, where=uri) from error

    def download(self, uri: str, path: Path) -> None:
        """Store the object in a file, in flat memory."""
        at = S3Address.parse(uri)
        try:
            self._client.download_file(at.bucket, at.key, str(path))
        except ClientError as error:
            raise typed(error, where=uri) from error
