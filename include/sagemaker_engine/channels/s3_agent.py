"""S3 as the platform reaches it: the agent that brings channels, keeps checkpoints and takes results away.

It works on the object store directly, not over HTTP, but what happens to a request over HTTP happens to it as well:
each of its calls is one request, or several, that a fault may refuse, hold up or answer by half.
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
"""How long the agent waits for an answer, as AWS's clients do by default."""
_BUFFER_BYTES = 1 << 20


class S3Agent(ObjectStore):
    """The object store through requests that may fail.

    It reads with `retrier`: a request is made again, a half object is asked for its rest, and nobody is ever given
    less than the whole. It writes without: whoever writes knows whether there is something better to do than wait.
    """

    def __init__(
        self, root: Path, *, find_fault: S3FaultFinder = no_fault, retrier: Retrier | None = None
    ) -> None:
        super().__init__(root)
        self._find_fault = find_fault
        self.retrier = retrier or Retrier()

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Return the object, asking again until the time is over."""

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
        """Return objects and common prefixes, asking again until the time is over."""

        def ask() -> Iterator[ObjectInfo | CommonPrefix]:
            self._request("ListObjectsV2", bucket, prefix)
            return super(S3Agent, self).list(bucket, prefix, delimiter, start_after)

        return self.retrier.ask(ask, what=f"ListObjectsV2 s3://{bucket}/{prefix}")

    def open_object(self, bucket: str, key: str) -> tuple[ObjectInfo, BinaryIO]:
        """Return the object and a stream of all its bytes; reading it raises S3Error when the time is over."""
        stream = _WholeObject(self, bucket, key)
        return stream.info, cast("BinaryIO", io.BufferedReader(stream, _BUFFER_BYTES))

    def link_to(self, bucket: str, key: str, target: Path) -> ObjectInfo:
        """Make `target` a link to the object's file; a copy where an answer comes only by half."""

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
        """Store `source` by one request."""
        self._request("PutObject", bucket, key)
        return super().put(
            bucket, key, source, attributes=attributes, condition=condition, link=link
        )

    def delete(self, bucket: str, key: str) -> bool:
        """Delete the object by one request."""
        self._request("DeleteObject", bucket, key)
        return super().delete(bucket, key)

    def get(self, bucket: str, key: str, *, offset: int) -> tuple[ObjectInfo, BinaryIO, int]:
        """Return what one request for the bytes from `offset` on brings: the object, a file, and how many come."""
        halves = self._request("GetObject", bucket, key)
        info, file = super().open_object(bucket, key)
        file.seek(offset)
        left = info.size - offset
        return info, file, left // 2 if halves else left

    def _request(self, operation: str, bucket: str, key: str) -> bool:
        """Meet what a fault does to one request; return whether its answer is only half of one.

        Raises:
            S3Error: The fault refuses it, or holds it up for longer than a client waits.
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
    """The bytes of one object; the rest is asked for again where an answer ends early."""

    def __init__(self, agent: S3Agent, bucket: str, key: str) -> None:
        super().__init__()
        self._agent, self._bucket, self._key = agent, bucket, key
        self._position = 0
        self.info, self._file, self._left = self._ask(lambda: agent.get(bucket, key, offset=0))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from here on; return 0 only at the object's end.

        Raises:
            S3Error: The rest cannot be had, or the key has another object meanwhile.
        """
        if not self._left and self._position < self.info.size:
            self._ask(self._continue)
        view = memoryview(buffer)[: self._left]
        count: int = self._file.readinto(view) if view else 0  # type: ignore[attr-defined]  # unbuffered
        if view and not count:
            raise S3Error(
                "InternalError", f"{self.info.blob} is shorter than {self.info.size} bytes"
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
