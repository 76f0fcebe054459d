"""Uploaded bytes of a request: decoding of ``aws-chunked`` and verification of the client's checksums.

Source: S3 API reference, "Authenticating requests: streaming" and "... with trailing headers".
Signatures are not verified: the engine accepts any credentials.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, BinaryIO, cast

from sagemaker_engine.s3.checksums import DIGEST_BYTES, decode, encode, is_computed
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from sagemaker_engine.http.body import RequestBody
    from sagemaker_engine.s3.blobs import BlobFolder, StagedBlob
    from sagemaker_engine.s3.request import S3Request

_MAX_LINE_BYTES = 1 << 14
_MAX_DOCUMENT_BYTES = 4 << 20
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_CHECKSUM = "x-amz-checksum-"


class AwsChunkedBody:
    """Decoder of ``aws-chunked``. After the last byte `trailers` contains the trailing headers."""

    def __init__(self, stream: RequestBody) -> None:
        self._stream = stream
        self._left = 0
        self._started = False
        self._ended = False
        self.trailers: dict[str, str] = {}

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` and return the number of bytes read.

        The number is smaller than the size of `buffer` only at the end of the upload.

        Raises:
            S3Error: IncompleteBody.
        """
        filled = 0
        while filled < len(buffer) and self._next_chunk():
            count = self._stream.readinto(buffer[filled : filled + self._left])
            if count == 0:
                raise S3Error("IncompleteBody")
            filled += count
            self._left -= count
        return filled

    def _next_chunk(self) -> bool:
        if self._left:
            return True
        if self._ended:
            return False
        if self._started:
            self._stream.readline(_MAX_LINE_BYTES)
        self._started = True
        line = self._stream.readline(_MAX_LINE_BYTES)
        try:
            self._left = int(line.split(b";", 1)[0], 16)
        except ValueError as error:
            raise S3Error("IncompleteBody") from error
        if self._left == 0:
            self._ended = True
            self._read_trailers()
        return self._left > 0

    def _read_trailers(self) -> None:
        while line := self._stream.readline(_MAX_LINE_BYTES).strip():
            name, _, value = line.decode("latin-1").partition(":")
            self.trailers[name.strip().lower()] = value.strip()


class Payload:
    """The upload of a request: `stage` writes it to disk, `verify` then returns its checksums."""

    def __init__(self, request: S3Request) -> None:
        self._request = request
        self._raw = cast("RequestBody", request.environ["wsgi.input"])
        sha256 = request.header("x-amz-content-sha256") or ""
        self._payload_sha256 = sha256 if _SHA256.fullmatch(sha256) else None
        encodings = request.header("content-encoding") or ""
        self._chunked: AwsChunkedBody | None = None
        if sha256.startswith("STREAMING-") or "aws-chunked" in encodings:
            self._chunked = AwsChunkedBody(self._raw)

    def stage(self, blobs: BlobFolder) -> StagedBlob:
        """Write the upload to a staged blob and compute a digest for each checksum that the request states.

        Raises:
            S3Error: MissingContentLength, IncompleteBody.
        """
        environ = self._request.environ
        size = self._declared_size()
        if size is None and "chunked" not in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
            raise S3Error("MissingContentLength")
        source = cast("BinaryIO", self._chunked or self._raw)
        staged = blobs.stage(source, algorithms=self._algorithms(), size=size)
        if size is not None and staged.size != size:
            staged.discard()
            raise S3Error("IncompleteBody")
        return staged

    def verify(self, staged: StagedBlob) -> dict[str, str]:
        """Compare the received bytes with the stated checksums, and return the stated checksums.

        A checksum whose algorithm this module cannot compute is returned without a comparison.

        Raises:
            S3Error: BadDigest, InvalidDigest, InvalidRequest, XAmzContentSHA256Mismatch.
        """
        claims = self._claims()
        for algorithm, claim in claims.items():
            if decode(claim, size=DIGEST_BYTES[algorithm]) is None:
                raise S3Error(
                    "InvalidRequest", f"Value for {_CHECKSUM}{algorithm.lower()} header is invalid."
                )
            computed = staged.digests.value(algorithm)
            if computed is not None and computed != claim:
                raise S3Error(
                    "BadDigest",
                    f"The {algorithm} you specified did not match the calculated checksum.",
                )
        self._verify_md5(staged)
        computed = staged.digests.value("SHA256")
        is_only_claim = self._payload_sha256 is not None and computed is not None and not claims
        if is_only_claim and computed != encode(bytes.fromhex(self._payload_sha256 or "")):
            raise S3Error("XAmzContentSHA256Mismatch")
        return claims

    def document(self) -> bytes:
        """Return a small upload (an XML or JSON document) as bytes.

        Raises:
            S3Error: MalformedXML, if it is larger than 4 MiB; BadDigest, if Content-MD5 differs.
        """
        limit_bytes = _MAX_DOCUMENT_BYTES
        buffer = memoryview(bytearray(min(limit_bytes, self._declared_size() or limit_bytes) + 1))
        size = (self._chunked or self._raw).readinto(buffer)
        if size > limit_bytes:
            raise S3Error("MalformedXML", f"The document is larger than {limit_bytes} bytes")
        document = bytes(buffer[:size])
        given = self._request.header("content-md5")
        if given and encode(hashlib.md5(document, usedforsecurity=False).digest()) != given:
            raise S3Error("BadDigest")
        return document

    def _declared_size(self) -> int | None:
        if self._chunked is not None:
            text = self._request.header("x-amz-decoded-content-length")
        else:
            text = self._request.environ.get("CONTENT_LENGTH")
        return int(text) if text and text.isdecimal() else None

    def _algorithms(self) -> set[str]:
        """Return the names of the checksum algorithms to compute while the upload is written.

        These are the algorithms that the request states and the engine can compute.
        If the request states only a payload hash, the result is SHA256 alone.
        """
        trailer = (self._request.header("x-amz-trailer") or "").lower()
        names = {*self._header_claims(), trailer.removeprefix(_CHECKSUM).upper()}
        names &= DIGEST_BYTES.keys()
        if not names and self._payload_sha256 and not self._request.header("content-md5"):
            return {"SHA256"}
        return {name for name in names if is_computed(name)}

    def _claims(self) -> dict[str, str]:
        claims = self._header_claims()
        trailers = self._chunked.trailers if self._chunked is not None else {}
        for name, value in trailers.items():
            algorithm = name.removeprefix(_CHECKSUM).upper()
            if name.startswith(_CHECKSUM) and algorithm in DIGEST_BYTES:
                claims[algorithm] = value
        return claims

    def _header_claims(self) -> dict[str, str]:
        return {
            name.upper(): value
            for name, value in self._request.headers_under(_CHECKSUM)
            if name.upper() in DIGEST_BYTES
        }

    def _verify_md5(self, staged: StagedBlob) -> None:
        given = self._request.header("content-md5")
        if given is None:
            return
        md5 = decode(given, size=DIGEST_BYTES["MD5"])
        if md5 is None:
            raise S3Error("InvalidDigest")
        if md5.hex() != staged.digests.md5_hex:
            raise S3Error(
                "BadDigest", "The Content-MD5 you specified did not match what we received."
            )
