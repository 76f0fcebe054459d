"""Checksums: verified on the way in, returned on the way out, in every way clients send them."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, strategies as st

from sagemaker_engine.s3.checksums import Digests, combine_crcs, multipart_etag

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from tests.sagemaker_engine.s3.conftest import RawClient

BUCKET = "data-bucket"
BODY = b"some bytes that are worth a checksum" * 100
CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


def crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def aws_chunked(body: bytes, *, trailer: str = "", chunk_bytes: int = 1000) -> bytes:
    """Return `body` as SDKs frame it over TLS: chunks, an empty one, then the trailer."""
    pieces = [body[start : start + chunk_bytes] for start in range(0, len(body), chunk_bytes)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return framed + b"0\r\n" + (f"{trailer}\r\n" if trailer else "").encode() + b"\r\n"


def put_chunked(raw: RawClient, framed: bytes, **headers: str) -> tuple[int, bytes]:
    answer = raw.send(
        "PUT",
        f"/{BUCKET}/k",
        framed,
        {
            "content-encoding": "aws-chunked",
            "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            "x-amz-decoded-content-length": str(len(BODY)),
            **headers,
        },
    )
    return answer.status, answer.body


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_the_sdk_accepts_its_own_checksum_back(s3: Any, algorithm: str) -> None:
    put = s3.put_object(Bucket=BUCKET, Key="k", Body=BODY, ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == BODY
    assert got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    part = s3.get_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED", Range="bytes=5-20")
    assert part["Body"].read() == BODY[5:21]
    assert f"Checksum{algorithm}" not in part


def test_checksums_come_back_only_where_they_are_asked_for(raw: RawClient, s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=BODY)
    plain = raw.send("GET", f"/{BUCKET}/k")
    asked = raw.send("GET", f"/{BUCKET}/k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert "x-amz-checksum-crc32" not in plain.headers
    assert asked.headers["x-amz-checksum-crc32"] == CRC32


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-md5": base64.b64encode(bytes(16)).decode()}, b"BadDigest"),
        ({"content-md5": "not base64"}, b"InvalidDigest"),
        ({"x-amz-checksum-crc32": crc32(b"other")}, b"BadDigest"),
        ({"x-amz-checksum-sha256": base64.b64encode(bytes(32)).decode()}, b"BadDigest"),
        ({"x-amz-checksum-crc32": "AAAA"}, b"InvalidRequest"),
        ({"x-amz-content-sha256": "0" * 64}, b"XAmzContentSHA256Mismatch"),
    ],
    ids=["md5", "malformed md5", "crc32", "sha256", "malformed crc32", "payload hash"],
)
def test_a_wrong_digest_is_refused_and_nothing_is_stored(
    raw: RawClient, store: ObjectStore, headers: dict[str, str], code: bytes
) -> None:
    answer = raw.send("PUT", f"/{BUCKET}/k", BODY, headers)
    assert answer.status == 400
    assert b"<Code>" + code + b"</Code>" in answer.body
    assert list(store.list(BUCKET)) == []
    assert store.recover() == (0, 0)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 10_000])
def test_aws_chunked_with_a_trailing_checksum_is_unwrapped(
    raw: RawClient, store: ObjectStore, chunk_bytes: int
) -> None:
    trailer = f"x-amz-checksum-crc32:{CRC32}"
    framed = aws_chunked(BODY, trailer=trailer, chunk_bytes=chunk_bytes)
    status, _ = put_chunked(raw, framed, **{"x-amz-trailer": "x-amz-checksum-crc32"})
    info = store.head(BUCKET, "k")
    assert status == 200
    assert store.path(BUCKET, "k").read_bytes() == BODY
    assert info.checksums == {"CRC32": CRC32}
    assert info.attributes.headers == {}


def test_a_wrong_trailing_checksum_is_refused(raw: RawClient, store: ObjectStore) -> None:
    framed = aws_chunked(BODY, trailer=f"x-amz-checksum-sha256:{crc32(BODY)}")
    status, body = put_chunked(raw, framed, **{"x-amz-trailer": "x-amz-checksum-sha256"})
    assert (status, b"InvalidRequest" in body) == (400, True)
    wrong = base64.b64encode(bytes(32)).decode()
    framed = aws_chunked(BODY, trailer=f"x-amz-checksum-sha256:{wrong}")
    status, body = put_chunked(raw, framed, **{"x-amz-trailer": "x-amz-checksum-sha256"})
    assert (status, b"BadDigest" in body) == (400, True)
    assert list(store.list(BUCKET)) == []


def test_signed_chunks_are_unwrapped(raw: RawClient, store: ObjectStore) -> None:
    signature = b";chunk-signature=" + b"0" * 64
    framed = b"%x%b\r\n%b\r\n0%b\r\n\r\n" % (len(BODY), signature, BODY, signature)
    status, _ = put_chunked(
        raw, framed, **{"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    )
    assert status == 200
    assert store.path(BUCKET, "k").read_bytes() == BODY


def test_a_chunked_body_of_the_wrong_length_is_incomplete(
    raw: RawClient, store: ObjectStore
) -> None:
    status, body = put_chunked(raw, aws_chunked(BODY[:-1]))
    assert (status, b"IncompleteBody" in body) == (400, True)
    assert list(store.list(BUCKET)) == []


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [("crc64nvme", "AAAAAAAAAAA="), ("crc32c", "AAAAAA=="), ("xxhash64", "AAAAAAAAAAA=")],
)
def test_checksums_python_cannot_compute_are_kept_and_returned(
    raw: RawClient, algorithm: str, value: str
) -> None:
    name = f"x-amz-checksum-{algorithm}"
    assert raw.send("PUT", f"/{BUCKET}/k", BODY, {name: value}).headers[name] == value
    asked = raw.send("HEAD", f"/{BUCKET}/k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert asked.headers[name] == value


def test_a_copy_may_ask_for_another_checksum(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=BODY)
    source = {"Bucket": BUCKET, "Key": "k"}
    copied = s3.copy_object(Bucket=BUCKET, Key="c", CopySource=source, ChecksumAlgorithm="SHA256")
    assert copied["CopyObjectResult"]["ChecksumSHA256"] == SHA256
    got = s3.get_object(Bucket=BUCKET, Key="c", ChecksumMode="ENABLED")
    assert got["Body"].read() == BODY


def test_wrong_checksum_for_the_sdk_raises_client_error(s3: Any) -> None:
    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(Bucket=BUCKET, Key="k", Body=BODY, ChecksumSHA256=crc32_as_sha256())


def crc32_as_sha256() -> str:
    return base64.b64encode(hashlib.sha256(b"other").digest()).decode()


def test_multipart_etag_of_one_empty_part() -> None:
    empty = hashlib.md5(b"", usedforsecurity=False).hexdigest()
    assert multipart_etag([empty]) == "59adb24ef3cdbe0297f05b395827453f-1"


def test_crc32_of_the_digits_is_the_published_check_value() -> None:
    digests = Digests(["CRC32"])
    digests.update(memoryview(b"123456789"))
    assert base64.b64decode(digests.value("CRC32") or "").hex() == "cbf43926"


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6))
def test_combined_crcs_equal_the_crc_of_the_whole(pieces: list[bytes]) -> None:
    combined = combine_crcs("CRC32", [(crc32(piece), len(piece)) for piece in pieces])
    assert combined == crc32(b"".join(pieces))


@pytest.mark.parametrize(
    ("algorithm", "check"), [("CRC32C", 0xE3069283), ("CRC64NVME", 0xAE8B14860A799888)]
)
def test_crcs_python_lacks_combine_by_the_published_check_value(algorithm: str, check: int) -> None:
    size = 4 if algorithm == "CRC32C" else 8
    digits = [slow_crc(algorithm, bytes([digit]), size) for digit in b"123456789"]
    expected = base64.b64encode(check.to_bytes(size, "big")).decode()
    assert combine_crcs(algorithm, [(digit, 1) for digit in digits]) == expected


def slow_crc(algorithm: str, data: bytes, size: int) -> str:
    """Return the CRC bit by bit, from its definition."""
    polynomial = {"CRC32C": 0x82F63B78, "CRC64NVME": 0x9A6C9329AC4BC9B5}[algorithm]
    ones = (1 << 8 * size) - 1
    register = ones
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (polynomial if register & 1 else 0)
    return base64.b64encode((register ^ ones).to_bytes(size, "big")).decode()
