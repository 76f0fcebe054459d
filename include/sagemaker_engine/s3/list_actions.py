"""Listing actions, with pagination: objects and versions of a bucket, unfinished uploads, and parts of an upload."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from sagemaker_engine.s3 import uploads
from sagemaker_engine.s3.documents import OWNER
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import CommonPrefix, ObjectInfo
from sagemaker_engine.s3.responses import Response, group, iso_time, text, xml

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import PartInfo, UploadInfo
    from sagemaker_engine.s3.request import S3Request

_MAX_ENTRIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its entries in order, and the name after which the next page starts (None on the last)."""

    entries: tuple[ObjectInfo | CommonPrefix, ...]
    next_start: str | None


def list_objects_v2(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListObjectsV2."""
    token = request.query.get("continuation-token")
    start_after = request.query.get("start-after", "")
    page = _page(store, request, start=start_after if token is None else _read_token(token))
    encode = _encoder(request)
    with_owner = request.query.get("fetch-owner", "").lower() == "true"
    return xml(
        "ListBucketResult",
        *_head(request, encode),
        text("KeyCount", len(page.entries)),
        *([] if token is None else [text("ContinuationToken", token)]),
        *(
            []
            if page.next_start is None
            else [text("NextContinuationToken", _token(page.next_start))]
        ),
        *([text("StartAfter", encode(start_after))] if start_after else []),
        text("IsTruncated", str(page.next_start is not None).lower()),
        *_entries(page, encode, owner=OWNER if with_owner else ""),
    )


def list_objects(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListObjects (version 1). NextMarker is returned only if the request has a delimiter."""
    marker = request.query.get("marker", "")
    page = _page(store, request, start=marker)
    encode = _encoder(request)
    has_next = page.next_start is not None and bool(request.query.get("delimiter"))
    return xml(
        "ListBucketResult",
        *_head(request, encode),
        text("Marker", encode(marker)),
        *([text("NextMarker", encode(page.next_start or ""))] if has_next else []),
        text("IsTruncated", str(page.next_start is not None).lower()),
        *_entries(page, encode, owner=OWNER),
    )


def list_versions(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListObjectVersions: each object has one version, named null, which is the latest."""
    marker = request.query.get("key-marker", "")
    page = _page(store, request, start=marker)
    encode = _encoder(request)
    version = text("VersionId", "null") + text("IsLatest", "true")
    more = page.next_start is not None
    return xml(
        "ListVersionsResult",
        *_head(request, encode),
        text("KeyMarker", encode(marker)),
        text("VersionIdMarker", request.query.get("version-id-marker", "")),
        *([text("NextKeyMarker", encode(page.next_start or ""))] if more else []),
        *([text("NextVersionIdMarker", "null")] if more else []),
        text("IsTruncated", str(more).lower()),
        *_entries(page, encode, owner=OWNER, name="Version", extra=version),
    )


def list_parts(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListParts."""
    upload = uploads.find_upload(store, request.bucket, request.key, request.query["uploadId"])
    after = request.number("part-number-marker", 0)
    limit = min(request.number("max-parts", _MAX_ENTRIES), _MAX_ENTRIES)
    found = uploads.list_parts(store, upload, after=after)
    shown = found[:limit]
    algorithm = upload.checksum_algorithm
    return xml(
        "ListPartsResult",
        text("Bucket", upload.bucket),
        text("Key", upload.key),
        text("UploadId", upload.id),
        text("PartNumberMarker", after),
        *([text("NextPartNumberMarker", shown[-1].number)] if shown else []),
        text("MaxParts", limit),
        text("IsTruncated", str(len(found) > len(shown)).lower()),
        *([text("ChecksumAlgorithm", algorithm)] if algorithm else []),
        *([text("ChecksumType", upload.attributes.checksum_type)] if algorithm else []),
        *(_part_element(part) for part in shown),
        OWNER,
        text("StorageClass", upload.attributes.storage_class),
    )


def list_uploads(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListMultipartUploads. The delimiter parameter is ignored: keys are not grouped."""
    prefix = request.query.get("prefix", "")
    marker = (request.query.get("key-marker", ""), request.query.get("upload-id-marker", ""))
    limit = min(request.number("max-uploads", _MAX_ENTRIES), _MAX_ENTRIES)
    found = [
        upload
        for upload in uploads.list_uploads(store, request.bucket)
        if upload.key.startswith(prefix) and _is_after(upload, marker)
    ]
    shown = found[:limit]
    return xml(
        "ListMultipartUploadsResult",
        text("Bucket", request.bucket),
        text("KeyMarker", marker[0]),
        text("UploadIdMarker", marker[1]),
        *([text("NextKeyMarker", shown[-1].key)] if shown else []),
        *([text("NextUploadIdMarker", shown[-1].id)] if shown else []),
        text("Prefix", prefix),
        text("MaxUploads", limit),
        text("IsTruncated", str(len(found) > len(shown)).lower()),
        *(_upload_element(upload) for upload in shown),
    )


def _page(store: ObjectStore, request: S3Request, *, start: str) -> Page:
    limit = min(request.number("max-keys", _MAX_ENTRIES), _MAX_ENTRIES)
    found = store.list(
        request.bucket,
        request.query.get("prefix", ""),
        request.query.get("delimiter") or None,
        start or None,
    )
    entries: list[ObjectInfo | CommonPrefix] = []
    for entry in found:
        if len(entries) == limit:
            # With max-keys=0 S3 returns an empty page and reports it as complete.
            return Page(entries=tuple(entries), next_start=_name(entries[-1]) if entries else None)
        entries.append(entry)
    return Page(entries=tuple(entries), next_start=None)


def _name(entry: ObjectInfo | CommonPrefix) -> str:
    return entry.prefix if isinstance(entry, CommonPrefix) else entry.key


def _head(request: S3Request, encode: Callable[[str], str]) -> list[str]:
    delimiter = request.query.get("delimiter")
    limit = min(request.number("max-keys", _MAX_ENTRIES), _MAX_ENTRIES)
    encoding = request.query.get("encoding-type")
    return [
        text("Name", request.bucket),
        text("Prefix", encode(request.query.get("prefix", ""))),
        *([text("Delimiter", encode(delimiter))] if delimiter else []),
        text("MaxKeys", limit),
        *([text("EncodingType", encoding)] if encoding else []),
    ]


def _entries(
    page: Page, encode: Callable[[str], str], *, owner: str, name: str = "Contents", extra: str = ""
) -> list[str]:
    return [
        group("CommonPrefixes", text("Prefix", encode(entry.prefix)))
        if isinstance(entry, CommonPrefix)
        else _object(entry, encode, owner=owner, name=name, extra=extra)
        for entry in page.entries
    ]


def _object(
    info: ObjectInfo, encode: Callable[[str], str], *, owner: str, name: str, extra: str
) -> str:
    algorithms = [text("ChecksumAlgorithm", algorithm) for algorithm in info.checksums]
    kind = [text("ChecksumType", info.attributes.checksum_type)] if algorithms else []
    return group(
        name,
        text("Key", encode(info.key)),
        extra,
        text("LastModified", iso_time(info.last_modified)),
        text("ETag", f'"{info.etag}"'),
        *algorithms,
        *kind,
        text("Size", info.size),
        owner,
        text("StorageClass", info.attributes.storage_class),
    )


def _encoder(request: S3Request) -> Callable[[str], str]:
    encoding = request.query.get("encoding-type")
    if encoding not in {None, "", "url"}:
        raise S3Error(
            "InvalidArgument",
            "Invalid Encoding Method specified in Request",
            ArgumentName="encoding-type",
        )
    return (lambda name: quote(name, safe="/")) if encoding else str


def _token(start: str) -> str:
    return base64.urlsafe_b64encode(start.encode()).decode()


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise S3Error(
            "InvalidArgument",
            "The continuation token provided is incorrect",
            ArgumentName="continuation-token",
        ) from error


def _part_element(part: PartInfo) -> str:
    return group(
        "Part",
        text("PartNumber", part.number),
        text("LastModified", iso_time(part.modified_at)),
        text("ETag", f'"{part.etag}"'),
        text("Size", part.size),
        *(text(f"Checksum{name}", value) for name, value in part.checksums.items()),
    )


def _upload_element(upload: UploadInfo) -> str:
    return group(
        "Upload",
        text("Key", upload.key),
        text("UploadId", upload.id),
        OWNER,
        text("StorageClass", upload.attributes.storage_class),
        text("Initiated", iso_time(upload.started_at)),
    )


def _is_after(upload: UploadInfo, marker: tuple[str, str]) -> bool:
    key, identity = marker
    if not key:
        return True
    if upload.key.encode() != key.encode():
        return upload.key.encode() > key.encode()
    return bool(identity) and upload.id > identity
