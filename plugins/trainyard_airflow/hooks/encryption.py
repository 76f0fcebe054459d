"""Server-side encryption of the objects that Trainyard writes to S3 from Airflow's processes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

_WRITES = ("PutObject", "CopyObject", "CreateMultipartUpload")
_OWN = ("ServerSideEncryption", "SSEKMSKeyId", "SSECustomerAlgorithm")


def encrypt_writes(client: Any, kms_key_id: str | None) -> Any:
    """Add SSE-KMS with `kms_key_id` to those writes of an S3 client that set no encryption.

    A bucket policy may require `x-amz-server-side-encryption` in the request even if the bucket has a default.

    Args:
        client: a client of boto3 or aiobotocore.
        kms_key_id: the key's ARN or id; None uses the bucket's default.

    Returns:
        The same client.
    """
    if kms_key_id is None:
        return client

    def add(params: dict[str, Any], **_: Any) -> None:
        if not any(name in params for name in _OWN):
            params |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id}

    for write in _WRITES:
        event = f"before-parameter-build.s3.{write}"
        client.meta.events.register(event, add, unique_id=f"trainyard-encryption-{write}")
    return client


@asynccontextmanager
async def encrypting(
    opening: AbstractAsyncContextManager[Any], kms_key_id: str | None
) -> AsyncIterator[Any]:
    """Open an async S3 client with the encryption of `encrypt_writes`."""
    async with opening as client:
        yield encrypt_writes(client, kms_key_id)
