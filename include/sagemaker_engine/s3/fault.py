"""Effect of a fault on one S3 request: an error as its answer, a delay before it, or half of the body.

The store knows no faults. Whoever serves it, the application and the platform's agent, asks a
`S3FaultFinder` before each request.
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
    """Effect on one request, in this order: delay, rejection, half an object."""

    stall_s: float = 0.0
    error: S3Error | None = None
    halves: bool = False


S3FaultFinder = Callable[[str, str, str], S3Fault | None]
"""Told a request's operation, bucket and key (empty where it has none); None: nothing happens."""


def no_fault(operation: str, bucket: str, key: str) -> None:
    """Let every request pass."""


class HalfBody:
    """The first half of a stretch of a file, after which the connection is closed."""

    def __init__(self, whole: FileBody) -> None:
        self._half = FileBody(whole.file, offset=whole.offset, length=whole.length // 2)
        self._missing = whole.length - self._half.length

    def __iter__(self) -> Iterator[bytes]:
        """Yield the half.

        Raises:
            TruncatedBodyError: always, after it.
        """
        yield from self._half
        raise TruncatedBodyError(f"a fault keeps the last {self._missing} bytes back")

    def close(self) -> None:
        """Close the file."""
        self._half.close()
