"""Statistics of a running job's ranks that have arrived in S3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import ClientPayloadError
from botocore.exceptions import ClientError, ResponseStreamingError

from trainyard.rules.statistics_bundles import BUNDLE, STREAM, BundledFiles, uploaded_until
from trainyard.rules.statistics_place import statistics_place
from trainyard_airflow.hooks.objects import S3Address
from trainyard_airflow.hooks.refusals import code_and_message, is_absent_object

if TYPE_CHECKING:
    from trainyard.rules.live import Piece
    from trainyard.sagemaker_api.snapshot import JobSnapshot

MOST_BYTES = 64 * 2**20
"""Maximum bytes of objects per poll; the rest is fetched after these have been evaluated."""
COPY_DELAY_S = 300.0
"""Assumed delay of the service's copies; users report minutes (docs/adr/0034-checkpoint-mirror.md)."""


def place_of_statistics(snapshot: JobSnapshot) -> str | None:
    """Return the S3 prefix to which the service copies a job's statistics, or None if it copies none."""
    return statistics_place(
        job_name=snapshot.name,
        hook_s3_uri=snapshot.hook_s3_uri,
        checkpoint_s3_uri=snapshot.checkpoint_s3_uri,
    )


@dataclass(slots=True)
class SyncedStatistics:
    """Statistics of a training: files that the service copies, and objects that the job's hosts upload.

    Args:
        place: S3 prefix of the copied files, or None. These files grow while the job runs.
        streams: S3 prefix of the hosts' objects, or None. An uploaded object never changes. A poll therefore
            lists only the objects after the last one that was fetched.
    """

    place: str | None
    streams: str | None = None
    is_behind: bool = False
    """True if the last poll left objects for the next one."""
    _bundled: BundledFiles = field(default_factory=BundledFiles)
    _seen: dict[str, str] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, snapshot: JobSnapshot) -> SyncedStatistics:
        """Return the statistics of a job; the hosts' objects are not read for a job with a Debugger hook."""
        streams = None if snapshot.hook_s3_uri else snapshot.statistics_s3_uri
        return cls(place_of_statistics(snapshot), streams)

    async def look(self, s3: Any) -> dict[str, int]:
        """Fetch the hosts' new objects, and return the sizes of all statistics files in bytes, by file name.

        Raises:
            ClientError: S3 rejected a call.
            ContractError: an object is not a valid bundle of statistics.
        """
        if self.streams:
            await self._fetch(s3, S3Address.parse(self.streams))
        return {**await self._copied(s3), **self._bundled.sizes}

    def complete_until(self, now: float, *, trains_since: float | None) -> float | None:
        """Return the epoch seconds up to which all records should have arrived; None if content is left to fetch.

        Args:
            now: epoch seconds.
            trains_since: when the instances last began to train; None if they do not train now.
        """
        if self.is_behind:
            return None
        if self._bundled.sizes:
            return uploaded_until(now, trains_since=trains_since)
        return now - COPY_DELAY_S

    async def read(self, s3: Any, piece: Piece) -> bytes:
        """Return a piece of a file; empty if the file was deleted after the listing.

        Raises:
            ClientError: S3 rejected the read.
            ResponseStreamingError: the response was shorter than announced.
        """
        if piece.name in self._bundled.sizes:
            return self._bundled.read(piece)
        at = S3Address.parse(piece.name)
        try:
            answer = await s3.get_object(
                Bucket=at.bucket, Key=at.key, Range=f"bytes={piece.start}-{piece.end - 1}"
            )
        except ClientError as error:
            if is_absent_object(*code_and_message(error)):
                return b""
            raise
        return await _content(answer)

    async def _copied(self, s3: Any) -> dict[str, int]:
        if self.place is None:
            return {}
        at = S3Address.parse(self.place)
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=at.bucket, Prefix=at.key)
        return {
            f"s3://{at.bucket}/{each['Key']}": int(each["Size"])
            async for page in pages
            for each in page.get("Contents", ())
        }

    async def _fetch(self, s3: Any, at: S3Address) -> None:
        """Fetch the hosts' new objects, attempt by attempt, up to `MOST_BYTES`."""
        fetched, self.is_behind = 0, False
        names = await self._stream_names(s3, at)
        for name in names:
            if name in self._finished:
                continue
            answer = await s3.list_objects_v2(
                Bucket=at.bucket, Prefix=name, StartAfter=self._seen.get(name, name)
            )
            found = [each for each in answer.get("Contents", ()) if BUNDLE.search(each["Key"])]
            for each in found:
                if fetched >= MOST_BYTES:
                    self.is_behind = True
                    return
                fetched += await self._take(s3, at, each["Key"])
                self._seen[name] = each["Key"]
            self.is_behind |= bool(answer.get("IsTruncated"))
            if not found and _attempt(name, at) < _attempt(names[-1], at):
                self._finished.add(name)  # a later attempt has begun: no more objects will arrive

    async def _stream_names(self, s3: Any, at: S3Address) -> list[str]:
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=at.bucket, Prefix=at.key, Delimiter="/"
        )
        found = [
            str(each["Prefix"])
            async for page in pages
            for each in page.get("CommonPrefixes", ())
            if STREAM.fullmatch(each["Prefix"].removeprefix(at.key))
        ]
        return sorted(found, key=lambda name: (_attempt(name, at), name))

    async def _take(self, s3: Any, at: S3Address, key: str) -> int:
        answer = await s3.get_object(Bucket=at.bucket, Key=key)
        content = await _content(answer)
        self._bundled.take(content, where=f"s3://{at.bucket}/{key}")
        return len(content)


def _attempt(name: str, at: S3Address) -> int:
    return int(name.removeprefix(at.key).partition(".")[0])


async def _content(answer: Any) -> bytes:
    """Return an object's bytes.

    Raises:
        ResponseStreamingError: the response was shorter than announced. aiobotocore raises aiohttp's error for that,
            which is not a subclass of botocore's errors.
    """
    try:
        async with answer["Body"] as body:
            content: bytes = await body.read()
    except ClientPayloadError as error:
        raise ResponseStreamingError(error=error) from error
    return content
