"""Effect of a fault on one S3 request: a delay, an error response, or a truncated body.

The store itself has no faults. Its two front ends, the S3 application and the agent that moves a job's
data, call an `S3FaultFinder` before each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.http.body import FileBody, TruncatedBodyError

if TYPE_CHECKING:
    from sagemaker_engine.s3.errors import S3Error


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Fault:
    """Effects on one request, applied in this order: delay in seconds, error, truncation to half of the object."""

    stall_s: float = 0.0
    error: S3Error | None = None
    halves: bool = False


S3FaultFinder = Callable[[str, str, str], S3Fault | None]
"""Function of (operation, bucket, key) that returns the fault for a request, or None.

Bucket and key are empty if the request names none.
"""


def no_fault(operation: str, bucket: str, key: str) -> None:
    """Return None: no request has a fault."""


class HalfBody:
    """Response body that sends the first half of `whole` and then closes the connection."""

    def __init__(self, whole: FileBody) -> None:
        self._half = FileBody(whole.file, offset=whole.offset, length=whole.length // 2)
        self._missing = whole.length - self._half.length

    def __iter__(self) -> Iterator[bytes]:
        """Yield the first half of the bytes.

        Raises:
            TruncatedBodyError: Always, after the last byte.
        """
        yield from self._half
        raise TruncatedBodyError(f"a fault withholds the last {self._missing} bytes")

    def close(self) -> None:
        """Close the file that the body is read from."""
        self._half.close()
