"""Multipart uploads: parts, copies of parts, what completes and what is refused."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from sagemaker_engine.s3.checksums import multipart_etag

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
KEY = "big/object"
PART = os.urandom(5 << 20)


def begin(s3: Any, **options: Any) -> dict[str, str]:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=KEY, **options)
    return {"Bucket": BUCKET, "Key": KEY, "UploadId": upload["UploadId"]}


def send(
    s3: Any, upload: dict[str, str], number: int, body: bytes, **options: Any
) -> dict[str, Any]:
    part = s3.upload_part(**upload, PartNumber=number, Body=body, **options)
    checksums = {name: value for name, value in part.items() if name.startswith("Checksum")}
    return {"PartNumber": number, "ETag": part["ETag"], **checksums}


def complete(s3: Any, upload: dict[str, str], *parts: dict[str, Any], **options: Any) -> Any:
    return s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": list(parts)}, **options)


def stored_blobs(store: ObjectStore) -> int:
    store.blobs.reaper.wait()
    return sum(1 for _ in store.blobs.names())


def test_parts_become_one_object_in_their_order(s3: Any, store: ObjectStore) -> None:
    upload = begin(s3, Metadata={"m": "1"}, ContentType="text/plain", Tagging="t=1")
    second = send(s3, upload, 7, b"tail")
    first = send(s3, upload, 2, PART)
    answer = complete(s3, upload, first, second)
    got = s3.get_object(Bucket=BUCKET, Key=KEY)
    assert got["Body"].read() == PART + b"tail"
    md5s = [hashlib.md5(body, usedforsecurity=False).hexdigest() for body in (PART, b"tail")]
    assert answer["ETag"] == got["ETag"] == f'"{multipart_etag(md5s)}"'
    assert (got["Metadata"], got["ContentType"]) == ({"m": "1"}, "text/plain")
    assert stored_blobs(store) == 1


def test_a_part_sent_again_replaces_the_first(s3: Any, store: ObjectStore) -> None:
    upload = begin(s3)
    send(s3, upload, 1, b"first")
    complete(s3, upload, send(s3, upload, 1, b"second"))
    assert s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"second"
    assert stored_blobs(store) == 1


def test_parts_that_were_not_chosen_are_dropped(s3: Any, store: ObjectStore) -> None:
    upload = begin(s3)
    send(s3, upload, 1, b"unused")
    complete(s3, upload, send(s3, upload, 2, b"used"))
    assert s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"used"
    assert stored_blobs(store) == 1


def test_an_object_may_be_read_part_by_part(s3: Any) -> None:
    upload = begin(s3)
    complete(s3, upload, send(s3, upload, 1, PART), send(s3, upload, 2, b"tail"))
    got = s3.get_object(Bucket=BUCKET, Key=KEY, PartNumber=2)
    assert (got["Body"].read(), got["PartsCount"]) == (b"tail", 2)
    with pytest.raises(ClientError, match="InvalidPartNumber"):
        s3.get_object(Bucket=BUCKET, Key=KEY, PartNumber=3)


def test_a_part_may_be_copied_from_a_range(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="source", Body=PART)
    upload = begin(s3)
    source = {"Bucket": BUCKET, "Key": "source"}
    whole = s3.upload_part_copy(**upload, PartNumber=1, CopySource=source)
    piece = s3.upload_part_copy(
        **upload, PartNumber=2, CopySource=source, CopySourceRange="bytes=10-19"
    )
    etags = [part["CopyPartResult"]["ETag"] for part in (whole, piece)]
    complete(s3, upload, *({"PartNumber": n + 1, "ETag": etag} for n, etag in enumerate(etags)))
    assert s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == PART + PART[10:20]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(
            "COMPOSITE",
            lambda parts: crc(b"".join(base64.b64decode(crc(p)) for p in parts)) + f"-{len(parts)}",
            id="composite",
        ),
        pytest.param("FULL_OBJECT", lambda parts: crc(b"".join(parts)), id="full object"),
    ],
)
def test_part_checksums_make_the_checksum_of_the_whole(s3: Any, kind: str, expected: Any) -> None:
    upload = begin(s3, ChecksumAlgorithm="CRC32", ChecksumType=kind)
    bodies = [PART, b"tail"]
    parts = [
        send(s3, upload, number, body, ChecksumAlgorithm="CRC32")
        for number, body in enumerate(bodies, 1)
    ]
    answer = complete(s3, upload, *parts)
    assert (answer["ChecksumCRC32"], answer["ChecksumType"]) == (expected(bodies), kind)
    got = s3.get_object(Bucket=BUCKET, Key=KEY, ChecksumMode="ENABLED")
    assert got["ChecksumCRC32"] == expected(bodies)
    assert got["Body"].read() == PART + b"tail"


def crc(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def test_a_wrong_checksum_of_the_whole_is_refused(s3: Any) -> None:
    upload = begin(s3, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    part = send(s3, upload, 1, b"body", ChecksumAlgorithm="CRC32")
    with pytest.raises(ClientError, match="BadDigest"):
        complete(s3, upload, part, ChecksumCRC32=crc(b"other"), ChecksumType="FULL_OBJECT")


def test_a_small_part_before_the_last_is_refused(s3: Any) -> None:
    upload = begin(s3)
    parts = [send(s3, upload, 1, b"small"), send(s3, upload, 2, b"tail")]
    with pytest.raises(ClientError, match="EntityTooSmall"):
        complete(s3, upload, *parts)


def test_parts_out_of_order_are_refused(s3: Any) -> None:
    upload = begin(s3)
    parts = [send(s3, upload, 1, PART), send(s3, upload, 2, b"tail")]
    with pytest.raises(ClientError, match="InvalidPartOrder"):
        complete(s3, upload, *reversed(parts))


@pytest.mark.parametrize(
    "part", [{"PartNumber": 1, "ETag": '"wrong"'}, {"PartNumber": 9, "ETag": '"x"'}]
)
def test_an_unknown_part_is_refused_and_the_upload_lives_on(s3: Any, part: dict[str, Any]) -> None:
    upload = begin(s3)
    good = send(s3, upload, 1, b"body")
    with pytest.raises(ClientError, match="InvalidPart"):
        complete(s3, upload, part)
    complete(s3, upload, good)


def test_an_aborted_upload_is_gone_with_its_parts(s3: Any, store: ObjectStore) -> None:
    upload = begin(s3)
    send(s3, upload, 1, b"body")
    s3.abort_multipart_upload(**upload)
    assert stored_blobs(store) == 0
    for call in (
        lambda: send(s3, upload, 2, b"x"),
        lambda: s3.list_parts(**upload),
        lambda: s3.abort_multipart_upload(**upload),
        lambda: complete(s3, upload, {"PartNumber": 1, "ETag": '"x"'}),
    ):
        with pytest.raises(ClientError, match="NoSuchUpload"):
            call()


def test_completing_again_gives_the_same_answer(s3: Any) -> None:
    upload = begin(s3)
    part = send(s3, upload, 1, b"body")
    assert complete(s3, upload, part)["ETag"] == complete(s3, upload, part)["ETag"]


def test_complete_create_only_refuses_an_existing_key(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"there")
    upload = begin(s3)
    part = send(s3, upload, 1, b"body")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        complete(s3, upload, part, IfNoneMatch="*")
    assert s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"there"


def test_parts_and_uploads_are_listed_in_pages(s3: Any) -> None:
    upload = begin(s3)
    for number in (3, 1, 2):
        send(s3, upload, number, b"x" * number)
    pages = s3.get_paginator("list_parts").paginate(**upload, PaginationConfig={"PageSize": 2})
    parts = [(part["PartNumber"], part["Size"]) for page in pages for part in page["Parts"]]
    assert parts == [(1, 1), (2, 2), (3, 3)]
    others = [s3.create_multipart_upload(Bucket=BUCKET, Key=f"k{n}")["UploadId"] for n in (1, 2)]
    listed = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket=BUCKET, PaginationConfig={"PageSize": 1}
    )
    found = [item["UploadId"] for page in listed for item in page.get("Uploads", [])]
    assert found == [upload["UploadId"], *others]


@pytest.mark.parametrize("number", [0, 10_001])
def test_part_numbers_end_at_ten_thousand(s3: Any, number: int) -> None:
    with pytest.raises(ClientError, match="InvalidArgument"):
        send(s3, begin(s3), number, b"x")


def test_the_transfer_manager_moves_a_large_file_both_ways(s3: Any) -> None:
    body = os.urandom(17 << 20)
    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    s3.upload_fileobj(io.BytesIO(body), BUCKET, KEY, Config=config)
    s3.copy({"Bucket": BUCKET, "Key": KEY}, BUCKET, "copy", Config=config)
    for key in (KEY, "copy"):
        got = io.BytesIO()
        s3.download_fileobj(BUCKET, key, got, Config=config)
        assert got.getvalue() == body
