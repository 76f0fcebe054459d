"""One object on the wire: put, get, head, ranges, conditions, copies, tags, deletes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import requests
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def read(s3: Any, key: str, **options: Any) -> bytes:
    return bytes(s3.get_object(Bucket=BUCKET, Key=key, **options)["Body"].read())


def test_what_was_put_is_what_is_got(s3: Any) -> None:
    body = bytes(range(256)) * 5000
    put = s3.put_object(Bucket=BUCKET, Key="k", Body=body)
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert got["Body"].read() == body
    assert put["ETag"] == got["ETag"] == f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
    assert got["ContentLength"] == len(body)
    assert got["ContentType"] == "binary/octet-stream"
    assert got["ResponseMetadata"]["RequestId"]


def test_headers_and_metadata_come_back_with_get_and_head(s3: Any) -> None:
    kept = {
        "ContentType": "text/csv",
        "CacheControl": "no-store",
        "ContentDisposition": 'attachment; filename="x"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "en",
        "StorageClass": "STANDARD_IA",
    }
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1", Metadata={"owner-name": "a b"}, **kept)
    for answer in (
        s3.get_object(Bucket=BUCKET, Key="k"),
        s3.head_object(Bucket=BUCKET, Key="k"),
    ):
        assert {name: answer[name] for name in kept} == kept
        assert answer["Metadata"] == {"owner-name": "a b"}


def test_overwrite_replaces_bytes_and_metadata(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"old", Metadata={"a": "1"})
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"newer")
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert (got["Body"].read(), got["Metadata"]) == (b"newer", {})


def test_an_empty_object_is_an_object(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="empty")
    got = s3.get_object(Bucket=BUCKET, Key="empty")
    assert (got["Body"].read(), got["ContentLength"]) == (b"", 0)
    assert got["ETag"] == '"d41d8cd98f00b204e9800998ecf8427e"'


@pytest.mark.parametrize(
    ("asked", "expected", "content_range"),
    [
        pytest.param("bytes=0-3", b"0123", "bytes 0-3/10", id="first four"),
        pytest.param("bytes=7-", b"789", "bytes 7-9/10", id="open end"),
        pytest.param("bytes=-2", b"89", "bytes 8-9/10", id="suffix"),
        pytest.param("bytes=-50", b"0123456789", "bytes 0-9/10", id="suffix beyond the start"),
        pytest.param("bytes=8-99", b"89", "bytes 8-9/10", id="end beyond the end"),
    ],
)
def test_a_range_gives_exactly_its_bytes(
    s3: Any, asked: str, expected: bytes, content_range: str
) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"0123456789")
    got = s3.get_object(Bucket=BUCKET, Key="k", Range=asked)
    assert got["Body"].read() == expected
    assert got["ContentRange"] == content_range
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206


def test_a_range_beyond_the_end_is_invalid(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"0123456789")
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=BUCKET, Key="k", Range="bytes=10-12")
    assert code_of(error) == "InvalidRange"
    assert error.value.response["Error"]["ActualObjectSize"] == "10"


@pytest.mark.parametrize("asked", ["bytes=5-2", "lines=1-2", "bytes=0-1,3-4"])
def test_a_range_s3_does_not_follow_gives_everything(s3: Any, asked: str) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"0123456789")
    got = s3.get_object(Bucket=BUCKET, Key="k", Range=asked)
    assert got["Body"].read() == b"0123456789"
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 200


@pytest.mark.parametrize("call", ["get_object", "head_object"])
def test_a_missing_key_is_not_found(s3: Any, call: str) -> None:
    with pytest.raises(ClientError) as error:
        getattr(s3, call)(Bucket=BUCKET, Key="absent")
    assert code_of(error) == ("NoSuchKey" if call == "get_object" else "404")


def test_a_missing_bucket_is_named(s3: Any) -> None:
    with pytest.raises(s3.exceptions.NoSuchBucket) as error:
        s3.put_object(Bucket="no-such-bucket", Key="k", Body=b"1")
    assert error.value.response["Error"]["BucketName"] == "no-such-bucket"


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        pytest.param({"IfMatch": "{etag}"}, 200, id="same etag"),
        pytest.param({"IfMatch": '"other"'}, 412, id="other etag"),
        pytest.param({"IfNoneMatch": "{etag}"}, 304, id="unchanged etag"),
        pytest.param({"IfNoneMatch": '"other"'}, 200, id="changed etag"),
        pytest.param({"IfModifiedSince": timedelta(hours=-1)}, 200, id="modified since"),
        pytest.param({"IfModifiedSince": timedelta(hours=1)}, 304, id="not modified since"),
        pytest.param({"IfUnmodifiedSince": timedelta(hours=1)}, 200, id="unmodified since"),
        pytest.param({"IfUnmodifiedSince": timedelta(hours=-1)}, 412, id="modified after all"),
        pytest.param(
            {"IfMatch": "{etag}", "IfUnmodifiedSince": timedelta(hours=-1)},
            200,
            id="a matching etag outweighs the date",
        ),
    ],
)
@pytest.mark.parametrize("call", ["get_object", "head_object"])
def test_a_condition_decides_the_status(
    s3: Any, call: str, condition: dict[str, Any], status: int
) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")["ETag"]
    now = datetime.now(tz=UTC)
    filled = {
        name: now + value if isinstance(value, timedelta) else value.replace("{etag}", etag)
        for name, value in condition.items()
    }
    try:
        answer = getattr(s3, call)(Bucket=BUCKET, Key="k", **filled)["ResponseMetadata"]
    except ClientError as error:
        answer = error.response["ResponseMetadata"]
    assert answer["HTTPStatusCode"] == status


def test_create_only_put_refuses_an_existing_key_and_keeps_it(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"second", IfNoneMatch="*")
    assert code_of(error) == "PreconditionFailed"
    assert read(s3, "k") == b"first"


def test_compare_and_swap_put_follows_the_etag(s3: Any) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")["ETag"]
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfMatch=etag)
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"3", IfMatch=etag)
    assert code_of(error) == "PreconditionFailed"
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="absent", Body=b"3", IfMatch=etag)
    assert code_of(error) == "NoSuchKey"
    assert read(s3, "k") == b"2"


def test_a_copy_keeps_bytes_and_metadata_and_outlives_its_source(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="a b/ü", Body=b"data", Metadata={"m": "1"})
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "a b/ü"})
    s3.put_object(Bucket=BUCKET, Key="a b/ü", Body=b"changed")
    s3.delete_object(Bucket=BUCKET, Key="a b/ü")
    got = s3.get_object(Bucket=BUCKET, Key="copy")
    assert (got["Body"].read(), got["Metadata"]) == (b"data", {"m": "1"})


def test_a_copy_may_replace_metadata_but_not_copy_onto_itself_unchanged(s3: Any) -> None:
    source = {"Bucket": BUCKET, "Key": "k"}
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"data", Metadata={"m": "1"})
    s3.copy_object(
        Bucket=BUCKET,
        Key="k",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"m": "2"},
        ContentType="text/plain",
    )
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert (got["Body"].read(), got["Metadata"]) == (b"data", {"m": "2"})
    assert got["ContentType"] == "text/plain"
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket=BUCKET, Key="k", CopySource=source)
    assert code_of(error) == "InvalidRequest"


def test_a_copy_checks_conditions_on_its_source(s3: Any) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"data")["ETag"]
    source = {"Bucket": BUCKET, "Key": "k"}
    s3.copy_object(Bucket=BUCKET, Key="c", CopySource=source, CopySourceIfMatch=etag)
    for condition in ({"CopySourceIfMatch": '"x"'}, {"CopySourceIfNoneMatch": etag}):
        with pytest.raises(ClientError) as error:
            s3.copy_object(Bucket=BUCKET, Key="c", CopySource=source, **condition)
        assert code_of(error) == "PreconditionFailed"


def test_a_copy_of_nothing_is_no_such_key(s3: Any) -> None:
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.copy_object(Bucket=BUCKET, Key="c", CopySource={"Bucket": BUCKET, "Key": "absent"})


def test_tags_come_with_put_and_change_without_it(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1", Tagging="a=1&b=x%20y")
    where = {"Bucket": BUCKET, "Key": "k"}
    assert s3.get_object_tagging(**where)["TagSet"] == [
        {"Key": "a", "Value": "1"},
        {"Key": "b", "Value": "x y"},
    ]
    assert s3.head_object(**where)["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"] == "2"
    s3.put_object_tagging(**where, Tagging={"TagSet": [{"Key": "c", "Value": "3"}]})
    assert s3.get_object_tagging(**where)["TagSet"] == [{"Key": "c", "Value": "3"}]
    s3.delete_object_tagging(**where)
    assert s3.get_object_tagging(**where)["TagSet"] == []


def test_deleting_twice_succeeds(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    for _ in range(2):
        answer = s3.delete_object(Bucket=BUCKET, Key="k")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_delete_many_reports_every_key(s3: Any, store: ObjectStore) -> None:
    keys = [f"k{number}" for number in range(3)]
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"1")
    wanted = [{"Key": key} for key in [*keys, "absent"]]
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": wanted})
    assert [item["Key"] for item in answer["Deleted"]] == [*keys, "absent"]
    assert list(store.list(BUCKET)) == []
    quiet = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": wanted, "Quiet": True})
    assert "Deleted" not in quiet


def test_presigned_addresses_work_without_credentials(s3: Any) -> None:
    put = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "a b"})
    assert requests.put(put, data=b"signed", timeout=20).status_code == 200
    params = {"Bucket": BUCKET, "Key": "a b", "ResponseContentType": "text/x-test"}
    get = s3.generate_presigned_url("get_object", Params=params)
    answer = requests.get(get, timeout=20)
    assert (answer.content, answer.headers["Content-Type"]) == (b"signed", "text/x-test")


@pytest.mark.parametrize("signature", ["s3", "s3v4"])
def test_a_presigned_address_ends_with_its_time(make_client: Any, signature: str) -> None:
    client = make_client(signature_version=signature)
    client.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    where = {"Bucket": BUCKET, "Key": "k"}
    live = client.generate_presigned_url("get_object", Params=where, ExpiresIn=60)
    dead = client.generate_presigned_url("get_object", Params=where, ExpiresIn=-1)
    assert requests.get(live, timeout=20).status_code == 200
    answer = requests.get(dead, timeout=20)
    assert (answer.status_code, "<Code>AccessDenied</Code>" in answer.text) == (403, True)


def test_there_is_one_version_and_its_name_is_null(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    assert read(s3, "k", VersionId="null") == b"1"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=BUCKET, Key="k", VersionId="abc")
    assert code_of(error) == "NoSuchVersion"


def test_encryption_settings_are_kept_and_answered(s3: Any) -> None:
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/key"}
    put = s3.put_object(Bucket=BUCKET, Key="k", Body=b"1", **asked)
    head = s3.head_object(Bucket=BUCKET, Key="k")
    for answer in (put, head):
        assert {name: answer[name] for name in asked} == asked


def test_object_attributes_answer_what_was_asked(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"12345", ChecksumAlgorithm="SHA256")
    got = s3.get_object_attributes(
        Bucket=BUCKET, Key="k", ObjectAttributes=["ETag", "ObjectSize", "Checksum"]
    )
    assert got["ObjectSize"] == 5
    assert got["ETag"] == hashlib.md5(b"12345", usedforsecurity=False).hexdigest()
    assert got["Checksum"]["ChecksumSHA256"]
    assert "StorageClass" not in got


def test_metadata_beyond_two_kilobytes_is_refused(s3: Any) -> None:
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"1", Metadata={"m": "x" * 2048})
    assert code_of(error) == "MetadataTooLarge"


def test_waiters_of_the_sdk_end(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    s3.get_waiter("object_exists").wait(Bucket=BUCKET, Key="k", WaiterConfig={"MaxAttempts": 1})
    s3.delete_object(Bucket=BUCKET, Key="k")
    s3.get_waiter("object_not_exists").wait(Bucket=BUCKET, Key="k", WaiterConfig={"MaxAttempts": 1})
