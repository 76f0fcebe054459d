"""S3 locations of a job's data, and errors of that data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sagemaker_engine.channels.retrier import is_transient

if TYPE_CHECKING:
    from sagemaker_engine.s3.errors import S3Error

_URI = re.compile(r"(?:s3|https)://([^/]+)/?(.*)", re.DOTALL)


class InputDataError(Exception):
    """The data of a job cannot be provided. The user can correct the cause, unless `is_service_fault` is true."""

    is_service_fault = False
    """Whether the service is at fault, and not the user."""


class S3RefusedError(InputDataError):
    """S3 rejects a request for a job's data.

    Example: `cannot read s3://b/k: AccessDenied (403): Access Denied`.
    """

    def __init__(self, what: str, error: S3Error) -> None:
        super().__init__(f"{what}: {error.code} ({error.status}): {error.message}")
        self.is_service_fault = is_transient(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Location:
    """A bucket, and a key or prefix in it."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the location of an `s3://bucket/key` or `https://bucket/key` URI.

        Raises:
            InputDataError: The text is not such a URI.
        """
        found = _URI.fullmatch(uri)
        if found is None:
            raise InputDataError(f"{uri!r} is not an S3 URI; write s3://bucket/prefix")
        return cls(bucket=found[1], key=found[2])

    @property
    def uri(self) -> str:
        """Return the location as an S3 URI."""
        return f"s3://{self.bucket}/{self.key}"

    def join(self, name: str) -> S3Location:
        """Return the location of `name` under this one."""
        base = self.key.rstrip("/")
        return S3Location(bucket=self.bucket, key=f"{base}/{name}" if base else name)
