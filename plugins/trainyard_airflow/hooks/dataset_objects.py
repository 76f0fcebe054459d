"""Implements the interface `trainyard.sharding.Objects` for S3: uploads, metadata and streams."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from boto3.s3.transfer import TransferConfig

from trainyard.sagemaker_api.failures import service_error
from trainyard.sharding.objects import ObjectHead, changed_object
from trainyard_airflow.hooks.object_stream import whole_object
from trainyard_airflow.hooks.objects import S3Address, listed
from trainyard_airflow.hooks.refusals import (
    answer_or_none,
    is_absent_object,
    refusals_typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MOST_DELETED = 1000
_COPY = TransferConfig(multipart_threshold=5 * 1024**3, multipart_chunksize=512 * 1024**2)
"""One request copies up to 5 GiB."""


class S3DatasetObjects:
    """Objects in S3 through one boto3 client. Threads may share it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        """Upload a file in bounded memory, with its SHA-256 as metadata unless `sha256` is None."""
        at = S3Address.parse(uri)
        extra = {} if sha256 is None else {"Metadata": {"sha256": sha256}}
        with refusals_typed(uri):
            self._client.upload_file(str(path), at.bucket, at.key, ExtraArgs=extra)

    def copy(self, uri: str, target: str, *, sha256: str | None) -> None:
        """Copy an object within S3, and store `sha256` in the copy's metadata unless it is None.

        An object above 5 GiB is copied in several parts.

        Raises:
            FileNotFoundError: there is no such object.
        """
        source, at = S3Address.parse(uri), S3Address.parse(target)
        extra = {"Metadata": {"sha256": sha256}, "MetadataDirective": "REPLACE"} if sha256 else {}

        def copied() -> bool:
            place = {"Bucket": source.bucket, "Key": source.key}
            self._client.copy(place, at.bucket, at.key, ExtraArgs=extra, Config=_COPY)
            return True

        if answer_or_none(copied, where=uri, is_absent=is_absent_object) is None:
            raise FileNotFoundError(uri)

    def delete(self, uris: Sequence[str]) -> None:
        """Delete these objects, which are in one bucket, in requests of up to 1,000. A missing object is ignored.

        Raises:
            TrainingRunError: S3 refuses to delete an object.
        """  # noqa: DOC501 - the named function returns one
        for start in range(0, len(uris), _MOST_DELETED):
            ats = [S3Address.parse(uri) for uri in uris[start : start + _MOST_DELETED]]
            keys = [{"Key": at.key} for at in ats]
            with refusals_typed(uris[start]):
                answer = self._client.delete_objects(
                    Bucket=ats[0].bucket, Delete={"Objects": keys, "Quiet": True}
                )
            for error in answer.get("Errors", ()):
                where = f"s3://{ats[0].bucket}/{error['Key']}"
                raise service_error(
                    error["Code"], error["Message"], operation="DeleteObjects", where=where
                )

    def head(self, uri: str) -> ObjectHead | None:
        """Return the object's size, ETag and SHA-256, or None if there is no such object."""
        at = S3Address.parse(uri)
        call = partial(self._client.head_object, Bucket=at.bucket, Key=at.key)
        answer = answer_or_none(call, where=uri, is_absent=is_absent_object)
        if answer is None:
            return None
        return ObjectHead(
            uri=uri,
            size=answer["ContentLength"],
            etag=answer["ETag"].strip('"'),
            sha256=answer.get("Metadata", {}).get("sha256"),
        )

    def list(self, prefix: str) -> Iterator[ObjectHead]:
        """Yield the objects whose address starts with the prefix, in key order."""
        at = S3Address.parse(prefix)
        with refusals_typed(prefix):
            for each in listed(self._client, at):
                uri = f"s3://{at.bucket}/{each['Key']}"
                yield ObjectHead(uri=uri, size=each["Size"], etag=each["ETag"].strip('"'))

    def open(self, uri: str, *, etag: str | None = None) -> BinaryIO:
        """Return a stream of the object's content; the caller closes it.

        Args:
            uri: the object's address.
            etag: ETag of the version to read; None reads the current version.

        Raises:
            FileNotFoundError: `etag` is None, and there is no such object.
            DataError: the object with this ETag was replaced or deleted.
        """  # noqa: DOC501 - the named function returns a DataError
        at = S3Address.parse(uri)
        version = {} if etag is None else {"IfMatch": f'"{etag}"'}
        call = partial(self._client.get_object, Bucket=at.bucket, Key=at.key, **version)
        answer = answer_or_none(call, where=uri, is_absent=_is_absent_version)
        if answer is None:
            if etag is not None:
                raise changed_object(uri, etag)
            raise FileNotFoundError(uri)
        return whole_object(self._client, answer, bucket=at.bucket, key=at.key)


def _is_absent_version(code: str, message: str) -> bool:
    return code in {"412", "PreconditionFailed"} or is_absent_object(code, message)
