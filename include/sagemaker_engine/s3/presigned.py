"""Expiry of presigned URLs. Their signatures are not checked: any credentials are accepted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.responses import iso_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATE = "%Y%m%dT%H%M%SZ"


def check_expiry(query: Mapping[str, str], *, now: float) -> None:
    """Reject a presigned request after its expiry; `now` is in epoch seconds.

    Raises:
        S3Error: AccessDenied: expired, or the expiry is missing or cannot be parsed.
    """
    ends_at = _ends_at(query)
    if ends_at is not None and now > ends_at:
        raise S3Error(
            "AccessDenied",
            "Request has expired",
            Expires=iso_time(ends_at),
            ServerTime=iso_time(now),
        )


def _ends_at(query: Mapping[str, str]) -> float | None:
    try:
        if "X-Amz-Signature" in query:
            began = datetime.strptime(query["X-Amz-Date"], _DATE).replace(tzinfo=UTC)
            return began.timestamp() + int(query["X-Amz-Expires"])
        if "Signature" in query and "AWSAccessKeyId" in query:
            return float(query["Expires"])
    except (KeyError, ValueError) as error:
        raise S3Error("AccessDenied", "The presigned address lacks a readable time") from error
    return None
