"""Buckets and the settings SDKs ask of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.sagemaker_engine.s3.conftest import RawClient

BUCKET = "data-bucket"


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_buckets_are_listed_by_name(s3: Any) -> None:
    for name in ("zebra", "apple"):
        s3.create_bucket(Bucket=name)
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["apple", BUCKET, "zebra"]


def test_creating_a_bucket_again_is_fine_in_us_east_1_only(s3: Any, make_client: Any) -> None:
    s3.create_bucket(Bucket="mine")
    s3.create_bucket(Bucket="mine")
    west = make_client("eu-west-1")
    place = {"LocationConstraint": "eu-west-1"}
    west.create_bucket(Bucket="west", CreateBucketConfiguration=place)
    for name in ("west", "mine"):
        with pytest.raises(west.exceptions.BucketAlreadyOwnedByYou):
            west.create_bucket(Bucket=name, CreateBucketConfiguration=place)


def test_a_bucket_knows_its_region(s3: Any, make_client: Any) -> None:
    west = make_client("eu-west-1")
    west.create_bucket(Bucket="west", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    assert west.get_bucket_location(Bucket="west")["LocationConstraint"] == "eu-west-1"
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
    assert west.head_bucket(Bucket="west")["BucketRegion"] == "eu-west-1"


def test_a_bucket_of_another_region_needs_its_constraint(make_client: Any) -> None:
    west = make_client("eu-west-1")
    with pytest.raises(ClientError) as error:
        west.create_bucket(Bucket="west")
    assert code_of(error) == "IllegalLocationConstraintException"


@pytest.mark.parametrize("name", ["UPPER", "ab", "a..b", "1.2.3.4", "-ab", "under_score", "x" * 64])
def test_illegal_bucket_names_are_refused(raw: RawClient, name: str) -> None:
    answer = raw.send("PUT", f"/{name}")
    assert answer.status == 400
    assert b"<Code>InvalidBucketName</Code>" in answer.body


def test_only_an_empty_bucket_is_deleted(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    with pytest.raises(ClientError) as error:
        s3.delete_bucket(Bucket=BUCKET)
    assert code_of(error) == "BucketNotEmpty"
    s3.delete_object(Bucket=BUCKET, Key="k")
    s3.create_multipart_upload(Bucket=BUCKET, Key="left-over")
    s3.delete_bucket(Bucket=BUCKET)
    with pytest.raises(ClientError) as error:
        s3.head_bucket(Bucket=BUCKET)
    assert code_of(error) == "404"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("get_bucket_policy", "NoSuchBucketPolicy"),
        ("get_bucket_tagging", "NoSuchTagSet"),
        ("get_bucket_cors", "NoSuchCORSConfiguration"),
        ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
        ("get_bucket_replication", "ReplicationConfigurationNotFoundError"),
        ("get_bucket_website", "NoSuchWebsiteConfiguration"),
        ("get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
    ],
)
def test_a_fresh_bucket_lacks_what_nobody_set(s3: Any, call: str, code: str) -> None:
    with pytest.raises(ClientError) as error:
        getattr(s3, call)(Bucket=BUCKET)
    assert code_of(error) == code


def test_a_fresh_bucket_has_the_defaults_of_the_service(s3: Any) -> None:
    rules = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)
    assert "TopicConfigurations" not in s3.get_bucket_notification_configuration(Bucket=BUCKET)
    block = s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"]
    assert block["BlockPublicPolicy"] is True
    assert s3.get_bucket_acl(Bucket=BUCKET)["Grants"][0]["Permission"] == "FULL_CONTROL"
    assert s3.get_bucket_request_payment(Bucket=BUCKET)["Payer"] == "BucketOwner"


def test_settings_come_back_as_they_were_put(s3: Any) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    s3.put_bucket_policy(Bucket=BUCKET, Policy=policy)
    assert s3.get_bucket_policy(Bucket=BUCKET)["Policy"] == policy
    s3.delete_bucket_policy(Bucket=BUCKET)
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        s3.get_bucket_policy(Bucket=BUCKET)
    tags = {"TagSet": [{"Key": "team", "Value": "ü & co"}]}
    s3.put_bucket_tagging(Bucket=BUCKET, Tagging=tags)
    assert s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"] == tags["TagSet"]
    rules = {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration=rules)
    assert s3.get_bucket_cors(Bucket=BUCKET)["CORSRules"] == rules["CORSRules"]


def test_versioning_is_refused_rather_than_promised(s3: Any) -> None:
    with pytest.raises(ClientError) as error:
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    assert code_of(error) == "NotImplemented"


@pytest.mark.parametrize("setting", ["policy", "tagging", "versioning", "acl", "location"])
def test_settings_of_a_missing_bucket_are_no_such_bucket(raw: RawClient, setting: str) -> None:
    answer = raw.send("GET", f"/no-such-bucket?{setting}")
    assert answer.status == 404
    assert b"<Code>NoSuchBucket</Code>" in answer.body


def test_virtual_host_addresses_name_the_bucket(raw: RawClient) -> None:
    for host in (f"{BUCKET}.localhost:4566", f"{BUCKET}.s3.us-east-1.amazonaws.com"):
        assert raw.send("PUT", "/a/b", b"1", {"Host": host}).status == 200
        assert raw.send("GET", "/a/b", headers={"Host": host}).body == b"1"
    assert raw.send("GET", f"/{BUCKET}/a/b").body == b"1"


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("POST", f"/{BUCKET}/k", b"MethodNotAllowed"),
        ("PUT", "/", b"MethodNotAllowed"),
        ("GET", f"/{BUCKET}/k?torrent", b"NotImplemented"),
        ("GET", f"/{BUCKET}/%ff", b"InvalidURI"),
        ("GET", f"/{BUCKET}?max-keys=many", b"InvalidArgument"),
        ("POST", f"/{BUCKET}?delete", b"MalformedXML"),
        ("PUT", f"/{BUCKET}?policy", b"InvalidRequest"),
    ],
)
def test_bad_requests_are_refused_in_xml(
    raw: RawClient, method: str, target: str, code: bytes
) -> None:
    answer = raw.send(method, target, b"<not xml")
    assert b"<Code>" + code + b"</Code>" in answer.body
    assert answer.headers["content-type"] == "application/xml"
    assert answer.headers["x-amz-request-id"].encode() in answer.body
