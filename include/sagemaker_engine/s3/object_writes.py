"""PUT, copy and DELETE of objects, and their tags."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from sagemaker_engine.s3.blobs import pieces
from sagemaker_engine.s3.checksums import Digests, is_computed
from sagemaker_engine.s3.documents import read_tags, read_xml, tags_document
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_reads import check_conditions, checksum_headers
from sagemaker_engine.s3.objects import DEFAULT_CONTENT_TYPE, ObjectAttributes, WriteCondition
from sagemaker_engine.s3.payload import Payload
from sagemaker_engine.s3.responses import Response, group, iso_time, text, xml

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import ObjectInfo
    from sagemaker_engine.s3.request import S3Request

_KEPT_HEADERS = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-amz-website-redirect-location",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
)
_MAX_METADATA_BYTES = 2048
_MAX_DELETES = 1000
_ONLY_VERSION = {"", "null"}


def put_object(store: ObjectStore, request: S3Request) -> Response:
    """Answer PutObject."""
    condition = write_condition(request)
    attributes = read_attributes(request)
    store.check_writable(request.bucket, request.key, condition)
    payload = Payload(request)
    with payload.stage(store.blobs) as staged:
        checksums = payload.verify(staged)
        info = store.publish(
            request.bucket,
            request.key,
            staged,
            attributes=replace(attributes, checksums=checksums),
            condition=condition,
        )
    return Response(headers=written_headers(info))


def copy_object(store: ObjectStore, request: S3Request) -> Response:
    """Answer CopyObject with a hard link to the source's content, which may have any size.

    Raises:
        S3Error: InvalidRequest, if a copy of an object to itself would change nothing.
    """
    source = copy_source(request)
    old = store.head(*source)
    check_conditions(request, old, prefix="x-amz-copy-source-")
    attributes = _copied_attributes(request, old)
    if source == (request.bucket, request.key) and attributes == old.attributes:
        raise S3Error(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without"
            " changing the object's metadata, storage class, website redirect location or"
            " encryption attributes.",
        )
    algorithm = (request.header("x-amz-checksum-algorithm") or "").upper()
    if is_computed(algorithm) and algorithm not in old.checksums:
        checksum = _checksum_of(store, old, algorithm)
        attributes = replace(attributes, checksums={algorithm: checksum})
    info = store.copy(
        source,
        (request.bucket, request.key),
        attributes=attributes,
        condition=write_condition(request),
    )
    return xml(
        "CopyObjectResult",
        text("LastModified", iso_time(info.last_modified)),
        text("ETag", f'"{info.etag}"'),
        *(text(f"Checksum{name}", value) for name, value in info.checksums.items()),
    )


def delete_object(store: ObjectStore, request: S3Request) -> Response:
    """Answer DeleteObject. Deleting a missing object succeeds, as in S3."""
    store.delete(request.bucket, request.key)
    return Response(status=204)


def delete_objects(store: ObjectStore, request: S3Request) -> Response:
    """Answer DeleteObjects: up to 1,000 keys in one transaction.

    Raises:
        S3Error: MalformedXML, if the document is not valid, has an empty key, or has no keys or more than
            1,000.
    """
    root = read_xml(Payload(request).document(), "Delete")
    keys = [item.findtext("Key") or "" for item in root.findall("Object")]
    if not 0 < len(keys) <= _MAX_DELETES or "" in keys:
        raise S3Error("MalformedXML")
    store.delete_many(request.bucket, keys)
    quiet = (root.findtext("Quiet") or "").lower() == "true"
    return xml(
        "DeleteResult", *([] if quiet else [group("Deleted", text("Key", key)) for key in keys])
    )


def get_tagging(store: ObjectStore, request: S3Request) -> Response:
    """Answer GetObjectTagging."""
    return tags_document(store.head(request.bucket, request.key).attributes.tags)


def put_tagging(store: ObjectStore, request: S3Request) -> Response:
    """Answer PutObjectTagging."""
    tags = read_tags(Payload(request).document())
    store.change_attributes(request.bucket, request.key, lambda old: replace(old, tags=tags))
    return Response()


def delete_tagging(store: ObjectStore, request: S3Request) -> Response:
    """Answer DeleteObjectTagging."""
    store.change_attributes(request.bucket, request.key, lambda old: replace(old, tags={}))
    return Response(status=204)


def read_attributes(request: S3Request) -> ObjectAttributes:
    """Return the object attributes that a write's headers declare.

    Raises:
        S3Error: MetadataTooLarge, if the user's metadata has more than 2,048 bytes.
    """
    metadata = dict(request.headers_under("x-amz-meta-"))
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > _MAX_METADATA_BYTES:
        raise S3Error("MetadataTooLarge", Size=str(size), MaxSizeAllowed=str(_MAX_METADATA_BYTES))
    headers = {name: value for name in _KEPT_HEADERS if (value := request.header(name))}
    encodings = [name.strip() for name in headers.pop("content-encoding", "").split(",")]
    if kept := [name for name in encodings if name and name != "aws-chunked"]:
        headers["content-encoding"] = ",".join(kept)
    return ObjectAttributes(
        content_type=request.content_type or DEFAULT_CONTENT_TYPE,
        headers=headers,
        metadata=metadata,
        tags=dict(parse_qsl(request.header("x-amz-tagging") or "", keep_blank_values=True)),
        storage_class=request.header("x-amz-storage-class") or "STANDARD",
    )


def write_condition(request: S3Request) -> WriteCondition:
    """Return the condition that the If-None-Match and If-Match headers set on a write.

    Raises:
        S3Error: NotImplemented, if If-None-Match is not an asterisk.
    """
    none_match, match = request.header("if-none-match"), request.header("if-match")
    if none_match not in {None, "*"}:
        raise S3Error("NotImplemented", Header="If-None-Match")
    return WriteCondition(
        must_be_absent=none_match == "*", etag=None if match is None else match.strip('"')
    )


def copy_source(request: S3Request) -> tuple[str, str]:
    """Return the bucket and key that the x-amz-copy-source header names.

    Raises:
        S3Error: InvalidArgument, NoSuchVersion.
    """
    given = request.header("x-amz-copy-source") or ""
    path, _, version = given.partition("?versionId=")
    if version not in _ONLY_VERSION:
        raise S3Error("NoSuchVersion", VersionId=version)
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    if not bucket or not key:
        raise S3Error(
            "InvalidArgument",
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            ArgumentName="x-amz-copy-source",
            ArgumentValue=given,
        )
    return bucket, key


def written_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the response headers of a write: ETag, checksums and encryption."""
    encryption = {
        name: value
        for name, value in info.attributes.headers.items()
        if name.startswith("x-amz-server-side-encryption")
    }
    return {"ETag": f'"{info.etag}"', **checksum_headers(info), **encryption}


def _copied_attributes(request: S3Request, old: ObjectInfo) -> ObjectAttributes:
    given = read_attributes(request)
    attributes = old.attributes
    if (request.header("x-amz-metadata-directive") or "COPY").upper() == "REPLACE":
        attributes = replace(
            given,
            tags=attributes.tags,
            checksums=attributes.checksums,
            checksum_type=attributes.checksum_type,
        )
    if (request.header("x-amz-tagging-directive") or "COPY").upper() == "REPLACE":
        attributes = replace(attributes, tags=given.tags)
    if request.header("x-amz-storage-class"):
        attributes = replace(attributes, storage_class=given.storage_class)
    return attributes


def _checksum_of(store: ObjectStore, info: ObjectInfo, algorithm: str) -> str:
    digests = Digests([algorithm])
    with store.blobs.path(info.blob).open("rb", buffering=0) as file:
        for piece in pieces(file, size=info.size):
            digests.update(piece)
    return digests.value(algorithm) or ""
