"""S3 access of the job runners: download of channels, upload of checkpoints and results.

The agent uses the object store directly, without HTTP. Simulated faults apply to it nevertheless: each of its calls is
one or more requests, which a fault may reject, delay or truncate.
"""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.fault import S3FaultFinder, no_fault
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sagemaker_engine.s3.objects import (
        CommonPrefix,
        ObjectAttributes,
        ObjectInfo,
        WriteCondition,
    )

T = TypeVar("T")

READ_TIMEOUT_S = 60.0
"""Read timeout in seconds, the default of AWS's clients."""
_BUFFER_BYTES = 1 << 20


class S3Agent(ObjectStore):
    """The object store, accessed by requests that may fail.

    Reads are retried with `retrier`; a truncated response is continued, so that callers receive the whole object.
    Writes are not retried: the caller decides whether waiting is the best reaction.
    """

    def __init__(
        self, root: Path, *, find_fault: S3FaultFinder = no_fault, retrier: Retrier | None = None
    ) -> None:
        super().__init__(root)
        self._find_fault = find_fault
        self.retrier = retrier or Retrier()

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Return the description of an object, without its content. Transient errors are retried."""

        def ask() -> ObjectInfo:
            self._request("HeadObject", bucket, key)
            return super(S3Agent, self).head(bucket, key)

        return self.retrier.ask(ask, what=f"HeadObject s3://{bucket}/{key}")

    def list(
        self,
        bucket: str,
        prefix: str = "",
        delimiter: str | None = None,
        start_after: str | None = None,
    ) -> Iterator[ObjectInfo | CommonPrefix]:
        """Return objects and common prefixes, with retries."""

        def ask() -> Iterator[ObjectInfo | CommonPrefix]:
            self._request("ListObjectsV2", bucket, prefix)
            return super(S3Agent, self).list(bucket, prefix, delimiter, start_after)

        return self.retrier.ask(ask, what=f"ListObjectsV2 s3://{bucket}/{prefix}")

    def open_object(self, bucket: str, key: str) -> tuple[ObjectInfo, BinaryIO]:
        """Return the object and a stream of its bytes; reading raises S3Error if the retries fail."""
        stream = _WholeObject(self, bucket, key)
        return stream.info, cast("BinaryIO", io.BufferedReader(stream, _BUFFER_BYTES))

    def link_to(self, bucket: str, key: str, target: Path) -> ObjectInfo:
        """Hard-link `target` to the object's file, or copy it if a fault truncates the response."""

        def ask() -> ObjectInfo | None:
            if self._request("GetObject", bucket, key):
                return None
            return super(S3Agent, self).link_to(bucket, key, target)

        info = self.retrier.ask(ask, what=f"GetObject s3://{bucket}/{key}")
        if info is not None:
            return info
        info, source = self.open_object(bucket, key)
        with source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, _BUFFER_BYTES)
        return info

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
        """Store `source` with one request, without retries."""
        self._request("PutObject", bucket, key)
        return super().put(
            bucket, key, source, attributes=attributes, condition=condition, link=link
        )

    def delete(self, bucket: str, key: str) -> bool:
        """Delete the object with one request, without retries; return whether it existed."""
        self._request("DeleteObject", bucket, key)
        return super().delete(bucket, key)

    def get(self, bucket: str, key: str, *, offset: int) -> tuple[ObjectInfo, BinaryIO, int]:
        """Send one request for the bytes from `offset`; return the object, its file, and the number of bytes received.

        The file is positioned at `offset`.
        """
        halves = self._request("GetObject", bucket, key)
        info, file = super().open_object(bucket, key)
        file.seek(offset)
        left = info.size - offset
        return info, file, left // 2 if halves else left

    def _request(self, operation: str, bucket: str, key: str) -> bool:
        """Apply the simulated fault of one request, if there is one; return whether only half of the response arrives.

        Raises:
            S3Error: The fault rejects the request, or delays it for longer than `READ_TIMEOUT_S`.
        """
        s3_fault = self._find_fault(operation, bucket, key)
        if s3_fault is None:
            return False
        self.retrier.pause(min(s3_fault.stall_s, READ_TIMEOUT_S))
        if s3_fault.stall_s > READ_TIMEOUT_S:
            raise S3Error("RequestTimeout")
        if s3_fault.error is not None:
            raise s3_fault.error
        return s3_fault.halves


class _WholeObject(io.RawIOBase):
    """Stream of one object's bytes. If a response ends early, the stream requests the rest of the object."""

    def __init__(self, agent: S3Agent, bucket: str, key: str) -> None:
        super().__init__()
        self._agent, self._bucket, self._key = agent, bucket, key
        self._position = 0
        self.info, self._file, self._left = self._ask(lambda: agent.get(bucket, key, offset=0))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into the buffer and return the number of bytes, 0 only at the object's end.

        Raises:
            S3Error: The retries failed, or the key now has another object.
        """
        if not self._left and self._position < self.info.size:
            self._ask(self._continue)
        view = memoryview(buffer)[: self._left]
        count: int = self._file.readinto(view) if view else 0  # type: ignore[attr-defined]  # unbuffered
        if view and not count:
            raise S3Error(
                "InternalError",
                f"the file {self.info.blob} of s3://{self._bucket}/{self._key} was cut off; upload the object again",
            )
        self._left -= count
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()

    def _continue(self) -> None:
        info, file, left = self._agent.get(self._bucket, self._key, offset=self._position)
        if info.blob != self.info.blob or not left:
            file.close()
            raise S3Error("PreconditionFailed" if left else "IncompleteBody", Key=self._key)
        self._file.close()
        self._file, self._left = file, left

    def _ask(self, call: Callable[[], T]) -> T:
        what = f"GetObject s3://{self._bucket}/{self._key}"
        return self._agent.retrier.ask(call, what=what)
