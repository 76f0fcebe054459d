"""Stream of a whole S3 object, which survives broken connections."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import HTTPClientError, IncompleteReadError

from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1024 * 1024
_BREAKS_IN_A_ROW = 5


def whole_object(client: Any, answer: Mapping[str, Any], *, bucket: str, key: str) -> BinaryIO:
    """Return a buffered stream of the object in a GetObject response; the caller closes it.

    If the connection breaks or stalls, the rest of the same version is requested again. Reading raises a
    TrainingRunError if the object has been replaced, and botocore's error if all retries fail.
    """
    stream = _ObjectRange(client, answer, bucket=bucket, key=key)
    return cast("BinaryIO", io.BufferedReader(stream, READ_AHEAD_BYTES))


class _ObjectRange(io.RawIOBase):
    def __init__(self, client: Any, answer: Mapping[str, Any], *, bucket: str, key: str) -> None:
        super().__init__()
        self._client, self._bucket, self._key = client, bucket, key
        self._body = answer["Body"]
        self._etag = answer["ETag"]
        self._position = 0
        self._breaks = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                count: int = self._body.readinto(buffer)
            except (HTTPClientError, IncompleteReadError) as error:
                self._breaks += 1
                if self._breaks > _BREAKS_IN_A_ROW:
                    raise
                self._ask_for_rest(error)
                continue
            self._position += count
            self._breaks = 0 if count else self._breaks
            return count

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()

    def _ask_for_rest(self, error: Exception) -> None:
        uri = f"s3://{self._bucket}/{self._key}"
        log.warning(
            "The response with %s ended at byte %d (%s): requesting the rest",
            uri,
            self._position,
            error,
        )
        self._body.close()
        with refusals_typed(uri):
            answer = self._client.get_object(
                Bucket=self._bucket,
                Key=self._key,
                Range=f"bytes={self._position}-",
                IfMatch=self._etag,
            )
        self._body = answer["Body"]
