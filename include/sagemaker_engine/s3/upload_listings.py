"""Multipart upload listings: unfinished uploads of a bucket, and parts of one upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.s3 import uploads
from sagemaker_engine.s3.documents import OWNER
from sagemaker_engine.s3.responses import Response, group, iso_time, text, xml

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import PartInfo, UploadInfo
    from sagemaker_engine.s3.request import S3Request

_PAGE = 1000


def list_parts(store: ObjectStore, request: S3Request) -> Response:
    """Answer ListParts."""
    upload = uploads.find_upload(store, request.bucket, request.key, request.query["uploadId"])
    after = request.number("part-number-marker", 0)
    limit = min(request.number("max-parts", _PAGE), _PAGE)
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
    limit = min(request.number("max-uploads", _PAGE), _PAGE)
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
