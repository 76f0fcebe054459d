"""Objects in S3 by their `s3://` address."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from trainyard.errors import Finding, SpecError
from trainyard_airflow.hooks.object_stream import whole_object
from trainyard_airflow.hooks.refusals import (
    answer_or_none,
    is_absent_object,
    is_present_object,
    refusals_typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """A bucket and a key."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the address in a text such as `s3://bucket/key`.

        Raises:
            SpecError: the text is not an S3 address.
        """
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not uri.startswith("s3://") or not bucket:
            finding = Finding(
                where="S3 address",
                what="is not an S3 URI of an object",
                got=uri,
                allowed="s3://bucket/key",
            )
            raise SpecError(finding)
        return cls(bucket=bucket, key=key)


def listed(client: Any, at: S3Address) -> Iterator[Mapping[str, Any]]:
    """Yield S3's entries (`Key`, `Size`, `LastModified`, ...) for the keys that begin with the key of `at`, in order.

    Raises:
        ClientError: S3 rejected the listing.
    """
    pages = client.get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=at.bucket, Prefix=at.key):
        yield from page.get("Contents", ())


def keys_below(client: Any, at: S3Address) -> list[str]:
    """Return the keys that begin with the key of `at`, in order.

    Raises:
        ClientError: S3 rejected the listing.
    """
    return [each["Key"] for each in listed(client, at)]


def newest_object_at(client: Any, uri: str) -> float | None:
    """Return the time of the newest object below the prefix `uri`, in epoch seconds; None if there is no object.

    Raises:
        TrainingRunError: S3 rejected the listing.
    """
    at = S3Address.parse(uri.rstrip("/") + "/")
    with refusals_typed(uri):
        return max((each["LastModified"].timestamp() for each in listed(client, at)), default=None)


class S3Objects:
    """Reads and writes whole objects.

    Each method raises a SpecError if the given text is not an S3 address, or a TrainingRunError if S3 rejects a call.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def exists(self, uri: str) -> bool:
        """Return whether there is an object at this address."""
        at = S3Address.parse(uri)
        call = partial(self._client.head_object, Bucket=at.bucket, Key=at.key)
        return answer_or_none(call, where=uri, is_absent=is_absent_object) is not None

    def read(self, uri: str) -> bytes:
        """Return the object's bytes."""
        with self.stream(uri) as stream:
            return stream.read()

    def read_or_none(self, uri: str) -> bytes | None:
        """Return the object's bytes, or None if there is no such object or bucket."""
        at = S3Address.parse(uri)
        call = partial(self._client.get_object, Bucket=at.bucket, Key=at.key)
        answer = answer_or_none(call, where=uri, is_absent=_is_absent)
        if answer is None:
            return None
        with whole_object(self._client, answer, bucket=at.bucket, key=at.key) as stream:
            return stream.read()

    def write(self, uri: str, content: bytes, *, content_type: str) -> None:
        """Store the bytes at this address."""
        at = S3Address.parse(uri)
        with refusals_typed(uri):
            self._client.put_object(
                Bucket=at.bucket, Key=at.key, Body=content, ContentType=content_type
            )

    def json_or_none(self, uri: str) -> Any:
        """Return the parsed JSON of the object, or None if there is no such object or bucket."""
        content = self.read_or_none(uri)
        return None if content is None else json.loads(content)

    def write_json(self, uri: str, text: str) -> None:
        """Store a JSON text at this address."""
        self.write(uri, text.encode(), content_type="application/json")

    def create(self, uri: str, content: bytes, *, content_type: str) -> bool:
        """Store the bytes unless this address already has an object; return whether they were stored."""
        at = S3Address.parse(uri)
        call = partial(
            self._client.put_object,
            Bucket=at.bucket,
            Key=at.key,
            Body=content,
            ContentType=content_type,
            IfNoneMatch="*",
        )
        return answer_or_none(call, where=uri, is_absent=is_present_object) is not None

    def delete(self, uri: str) -> None:
        """Delete the object at this address, if there is one."""
        at = S3Address.parse(uri)
        with refusals_typed(uri):
            self._client.delete_object(Bucket=at.bucket, Key=at.key)

    def blocks(self, uri: str) -> Iterator[bytes]:
        """Yield the object's bytes in blocks of at most 1 MiB."""
        with self.stream(uri) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block

    def sha256(self, uri: str) -> str:
        """Return the SHA-256 of the object's bytes, in hexadecimal digits."""
        digest = hashlib.sha256()
        for block in self.blocks(uri):
            digest.update(block)
        return digest.hexdigest()

    def stream(self, uri: str) -> BinaryIO:
        """Return a stream of the object's bytes; the caller closes it."""
        at = S3Address.parse(uri)
        with refusals_typed(uri):
            answer = self._client.get_object(Bucket=at.bucket, Key=at.key)
        return whole_object(self._client, answer, bucket=at.bucket, key=at.key)

    def newest(self, prefix: str, *, name: str) -> str | None:
        """Return the address of the newest object that has the file name `name` and is below the prefix, or None."""
        at = S3Address.parse(prefix)
        with refusals_typed(prefix):
            found = [
                (each["LastModified"], each["Key"])
                for each in listed(self._client, at)
                if each["Key"].rpartition("/")[2] == name
            ]
        return f"s3://{at.bucket}/{max(found)[1]}" if found else None


def _is_absent(code: str, message: str) -> bool:
    """Return whether S3 rejected a read because the object, or its bucket, does not exist."""
    return code == "NoSuchBucket" or is_absent_object(code, message)
