"""Access to an S3 prefix from a training container, by boto3 with its standard credentials and endpoint.

boto3 is imported at the first request, on the requesting thread, because an image may not have it and the import takes
a second. Requests have timeouts.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard_watch.errors import TrainerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KMS_KEY_VARIABLE = "TRAINYARD_KMS_KEY_ID"
CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 5, 30, 3

Answer = TypeVar("Answer")


class S3UnavailableError(TrainerError):
    """A request to S3 failed: no boto3, no network, no credentials, no permission or no such object.

    Attributes:
        is_outage: whether S3 responded that it cannot serve the request now (429 or 5xx).
    """

    def __init__(self, message: str, *, is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


class S3Prefix:
    """Objects below one prefix, with names relative to it. Must be used by one thread at a time.

    Args:
        uri: `s3://bucket/some/folder/`.
    """

    def __init__(self, uri: str) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.uri = f"s3://{bucket}/{key.rstrip('/')}/" if key.strip("/") else f"s3://{bucket}/"
        self._bucket, self._key = bucket, self.uri.removeprefix(f"s3://{bucket}/")
        self._made: Any = None

    def sizes(self) -> dict[str, int]:
        """Return name -> size in bytes of each object below the prefix.

        Raises:
            S3UnavailableError: the request failed.
        """
        return self._asked(
            lambda client: {
                each["Key"].removeprefix(self._key): int(each["Size"])
                for page in self._pages(client)
                for each in page.get("Contents", ())
            }
        )

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the prefix, in order.

        Raises:
            S3UnavailableError: the request failed.
        """
        return self._asked(
            lambda client: [
                each["Prefix"].removeprefix(self._key).rstrip("/")
                for page in self._pages(client, Delimiter="/")
                for each in page.get("CommonPrefixes", ())
            ]
        )

    def read(self, name: str) -> bytes:
        """Return an object's content.

        Raises:
            S3UnavailableError: the request failed, or there is no such object.
        """
        key = f"{self._key}{name}"
        return self._asked(
            lambda client: bytes(client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        )

    def write(self, name: str, content: bytes) -> None:
        """Put an object, encrypted with the key of TRAINYARD_KMS_KEY_ID, or with the bucket's default.

        Raises:
            S3UnavailableError: the request failed.
        """
        key = f"{self._key}{name}"
        encryption = encryption_of(os.environ)
        self._asked(
            lambda client: client.put_object(
                Bucket=self._bucket, Key=key, Body=content, **encryption
            )
        )

    def _pages(self, client: Any, **more: str) -> Iterator[dict[str, Any]]:
        pages = client.get_paginator("list_objects_v2")
        yield from pages.paginate(Bucket=self._bucket, Prefix=self._key, **more)

    def _asked(self, ask: Callable[[Any], Answer]) -> Answer:
        try:
            return ask(self._client())
        except S3UnavailableError:
            raise
        except Exception as error:  # boto3's own, and those of the HTTP library below it
            message = f"a request to {self.uri} failed with {type(error).__name__}: {error}"
            raise S3UnavailableError(message, is_outage=_is_outage(error)) from error

    def _client(self) -> Any:
        if self._made is None:
            try:
                from boto3.session import Session  # noqa: PLC0415
                from botocore.config import Config  # noqa: PLC0415
            except ImportError as error:
                message = f"{self.uri} cannot be reached, because this image has no boto3"
                raise S3UnavailableError(message) from error
            config = Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            )
            self._made = Session(region_name=region_of(os.environ)).client("s3", config=config)
        return self._made


def _is_outage(error: Exception) -> bool:
    """Return whether an error of boto3 is an answer of S3 with status 429 or 5xx."""
    answer: Mapping[str, Any] = getattr(error, "response", {})
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def region_of(environ: Mapping[str, str]) -> str | None:
    """Return the container's region, or None to leave it to boto3's own configuration.

    SageMaker sets AWS_REGION. boto3 reads AWS_DEFAULT_REGION only (botocore, configprovider.py).
    Without a region, boto3 sends requests to us-east-1; they fail for objects of other partitions.
    """
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def encryption_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the SSE-KMS arguments of PutObject, which a bucket policy may require; an empty dict without a key."""
    key = environ.get(KMS_KEY_VARIABLE)
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
