"""What S3 has of the statistics that the ranks of a running job write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from distributed_training.hooks.objects import S3Address
from distributed_training.hooks.refusals import code_and_message, is_absent_object
from include.rules.statistics_place import statistics_place

if TYPE_CHECKING:
    from include.rules.live import Piece
    from include.sagemaker_api.snapshot import JobSnapshot


def place_of_statistics(snapshot: JobSnapshot) -> str | None:
    """Return where a job syncs its statistics to; None where it syncs none."""
    return statistics_place(
        job_name=snapshot.name,
        hook_s3_uri=snapshot.hook_s3_uri,
        checkpoint_s3_uri=snapshot.checkpoint_s3_uri,
    )


async def statistics_sizes(s3: Any, place: str | None) -> dict[str, int]:
    """Return the sizes of the statistics in S3, by address; nothing for a job that syncs none.

    Raises:
        ClientError: S3 refuses.
    """
    if place is None:
        return {}
    at = S3Address.parse(place)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=at.bucket, Prefix=at.key)
    return {
        f"s3://{at.bucket}/{each['Key']}": int(each["Size"])
        async for page in pages
        for each in page.get("Contents", ())
    }


async def read_piece(s3: Any, piece: Piece) -> bytes:
    """Return a piece of a file; nothing where it was deleted since it was listed.

    Raises:
        ClientError: S3 refuses.
    """
    at = S3Address.parse(piece.name)
    try:
        answer = await s3.get_object(
            Bucket=at.bucket, Key=at.key, Range=f"bytes={piece.start}-{piece.end - 1}"
        )
    except ClientError as error:
        if is_absent_object(*code_and_message(error)):
            return b""
        raise
    async with answer["Body"] as body:
        content: bytes = await body.read()
    return content
