"""Bucket actions of S3: create, delete, list, location, ACLs and the settings that SDKs request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sagemaker_engine.s3.documents import OWNER, acl_document, read_tags, read_xml
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.payload import Payload
from sagemaker_engine.s3.responses import Response, group, iso_time, text, xml

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.request import S3Request

_DEFAULT_REGION = "us-east-1"
_ENCRYPTION = group(
    "Rule",
    group("ApplyServerSideEncryptionByDefault", text("SSEAlgorithm", "AES256")),
    text("BucketKeyEnabled", "false"),
)

SETTINGS: dict[str, tuple[str, str]] = {
    "accelerate": ("AccelerateConfiguration", ""),
    "analytics": ("ListBucketAnalyticsConfigurationResult", text("IsTruncated", "false")),
    "cors": ("", "NoSuchCORSConfiguration"),
    "encryption": ("ServerSideEncryptionConfiguration", _ENCRYPTION),
    "inventory": ("ListInventoryConfigurationsResult", text("IsTruncated", "false")),
    "lifecycle": ("", "NoSuchLifecycleConfiguration"),
    "logging": ("BucketLoggingStatus", ""),
    "metrics": ("ListMetricsConfigurationsResult", text("IsTruncated", "false")),
    "notification": ("NotificationConfiguration", ""),
    "object-lock": ("", "ObjectLockConfigurationNotFoundError"),
    "ownershipControls": (
        "OwnershipControls",
        group("Rule", text("ObjectOwnership", "BucketOwnerEnforced")),
    ),
    "policy": ("", "NoSuchBucketPolicy"),
    "policyStatus": ("PolicyStatus", text("IsPublic", "false")),
    "publicAccessBlock": (
        "PublicAccessBlockConfiguration",
        "".join(
            text(name, "true")
            for name in (
                "BlockPublicAcls",
                "IgnorePublicAcls",
                "BlockPublicPolicy",
                "RestrictPublicBuckets",
            )
        ),
    ),
    "replication": ("", "ReplicationConfigurationNotFoundError"),
    "requestPayment": ("RequestPaymentConfiguration", text("Payer", "BucketOwner")),
    "tagging": ("", "NoSuchTagSet"),
    "versioning": ("VersioningConfiguration", ""),
    "website": ("", "NoSuchWebsiteConfiguration"),
}
"""Setting -> response if no document is stored: (root element, its content), or ("", error code).

A document that a client stores is returned unchanged. The engine does not act on it.
"""


def list_buckets(store: ObjectStore, _request: S3Request) -> Response:
    """Answer ListBuckets."""
    buckets = [
        group(
            "Bucket", text("Name", bucket.name), text("CreationDate", iso_time(bucket.created_at))
        )
        for bucket in store.list_buckets()
    ]
    return xml("ListAllMyBucketsResult", OWNER, group("Buckets", *buckets))


def create_bucket(store: ObjectStore, request: S3Request) -> Response:
    """Answer CreateBucket.

    As in S3, an existing bucket is an error unless its region and the requested one are both us-east-1.

    Raises:
        S3Error: BucketAlreadyOwnedByYou, InvalidBucketName or a location error.
    """
    region = _wanted_region(request)
    is_new = store.create_bucket(request.bucket, region=region)
    if not is_new and {region, store.head_bucket(request.bucket).region} != {_DEFAULT_REGION}:
        raise S3Error("BucketAlreadyOwnedByYou", BucketName=request.bucket)
    return Response(headers={"Location": f"/{request.bucket}"})


def head_bucket(store: ObjectStore, request: S3Request) -> Response:
    """Answer HeadBucket."""
    bucket = store.head_bucket(request.bucket)
    return Response(
        headers={
            "x-amz-bucket-region": bucket.region,
            "x-amz-access-point-alias": "false",
            "Content-Type": "application/xml",
        }
    )


def delete_bucket(store: ObjectStore, request: S3Request) -> Response:
    """Answer DeleteBucket."""
    store.delete_bucket(request.bucket)
    return Response(status=204)


def get_location(store: ObjectStore, request: S3Request) -> Response:
    """Answer GetBucketLocation: empty for us-east-1, as in S3."""
    region = store.head_bucket(request.bucket).region
    return xml("LocationConstraint", "" if region == _DEFAULT_REGION else region)


def get_acl(store: ObjectStore, request: S3Request) -> Response:
    """Answer GetBucketAcl and GetObjectAcl."""
    if request.key:
        store.head(request.bucket, request.key)
    else:
        store.head_bucket(request.bucket)
    return acl_document()


def put_acl(store: ObjectStore, request: S3Request) -> Response:
    """Accept an ACL without effect: every client of the engine has the owner's rights."""
    get_acl(store, request)
    return Response()


def get_setting(store: ObjectStore, request: S3Request, name: str) -> Response:
    """Return the stored document of the bucket setting `name`; without one, S3's response for a new bucket.

    Raises:
        S3Error: NoSuchBucket, or the setting's own not-found error, such as NoSuchBucketPolicy.
    """
    document = store.bucket_setting(request.bucket, name)
    root, content = SETTINGS[name]
    if document is not None:
        kind = "application/json" if name == "policy" else "application/xml"
        return Response(headers={"Content-Type": kind}, body=document)
    if not root:
        raise S3Error(content, BucketName=request.bucket)
    return xml(root, content)


def put_setting(store: ObjectStore, request: S3Request, name: str) -> Response:
    """Validate the request's document and store it as the bucket setting `name`."""
    document = Payload(request).document()
    if name == "policy":
        _check_json(document)
    elif name == "tagging":
        read_tags(document)
    elif name == "versioning":
        _check_versioning(document)
    store.set_bucket_setting(request.bucket, name, document)
    return Response(status=204 if name in {"policy", "tagging"} else 200)


def delete_setting(store: ObjectStore, request: S3Request, name: str) -> Response:
    """Remove the stored document of the bucket setting `name`."""
    store.set_bucket_setting(request.bucket, name, None)
    return Response(status=204)


def _check_json(document: bytes) -> None:
    try:
        json.loads(document)
    except ValueError as error:
        raise S3Error("InvalidRequest", "Policies must be valid JSON") from error


def _check_versioning(document: bytes) -> None:
    status = read_xml(document, "VersioningConfiguration").findtext("Status")
    if status == "Enabled":
        raise S3Error(
            "NotImplemented",
            "Versioning is not supported: the local engine keeps one version of each object.",
        )


def _wanted_region(request: S3Request) -> str:
    document = Payload(request).document()
    constraint = ""
    if document:
        root = read_xml(document, "CreateBucketConfiguration")
        constraint = root.findtext("LocationConstraint") or ""
    region = "eu-west-1" if constraint == "EU" else constraint
    if region == _DEFAULT_REGION:
        raise S3Error("InvalidLocationConstraint", LocationConstraint=constraint)
    if request.region == _DEFAULT_REGION:
        return region or _DEFAULT_REGION
    if region != request.region:
        raise S3Error(
            "IllegalLocationConstraintException",
            f"The {constraint or 'unspecified'} location constraint is incompatible for the region"
            " specific endpoint this request was sent to.",
        )
    return region
