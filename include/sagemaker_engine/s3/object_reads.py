"""GET and HEAD of one object: conditions, ranges, parts and response headers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sagemaker_engine.http.body import FileBody
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.responses import Response, group, http_time, text, xml

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import ObjectInfo
    from sagemaker_engine.s3.request import S3Request

_RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*")
_OVERRIDES = {
    f"response-{name}": name
    for name in (
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
    )
}


def get_object(store: ObjectStore, request: S3Request) -> Response:
    """Answer GetObject. The response body is a file range that the server sends.

    Raises:
        S3Error: NoSuchBucket, NoSuchKey, PreconditionFailed, NotModified, InvalidRange, InvalidPartNumber.
    """
    info, file = store.open_object(request.bucket, request.key)
    try:
        check_conditions(request, info)
        status, offset, length = _stretch(request, info)
        headers = _headers(request, info, status=status, offset=offset, length=length)
    except BaseException:
        file.close()
        raise
    return Response(
        status=status, headers=headers, body=FileBody(file, offset=offset, length=length)
    )


def head_object(store: ObjectStore, request: S3Request) -> Response:
    """Answer HeadObject. It raises the same errors as `get_object`."""
    info = store.head(request.bucket, request.key)
    check_conditions(request, info)
    status, offset, length = _stretch(request, info)
    return Response(
        status=status,
        headers=_headers(request, info, status=status, offset=offset, length=length),
    )


def get_object_attributes(store: ObjectStore, request: S3Request) -> Response:
    """Answer GetObjectAttributes with the requested attributes."""
    info = store.head(request.bucket, request.key)
    wanted = {name.strip() for name in (request.header("x-amz-object-attributes") or "").split(",")}
    checksums = [text(f"Checksum{name}", value) for name, value in info.checksums.items()]
    known = {
        "ETag": text("ETag", info.etag),
        "Checksum": group(
            "Checksum", *checksums, text("ChecksumType", info.attributes.checksum_type)
        )
        if checksums
        else "",
        "ObjectParts": group("ObjectParts", text("TotalPartsCount", len(info.parts)))
        if info.parts
        else "",
        "StorageClass": text("StorageClass", info.attributes.storage_class),
        "ObjectSize": text("ObjectSize", info.size),
    }
    return xml(
        "GetObjectAttributesResponse",
        *(element for name, element in known.items() if name in wanted),
        headers={"Last-Modified": http_time(info.last_modified)},
    )


def check_conditions(request: S3Request, info: ObjectInfo, *, prefix: str = "") -> None:
    """Check If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since (RFC 9110, 13.2.2).

    `prefix` is put before these names to get the names of the request's headers. It is empty for a read and
    `x-amz-copy-source-` for the source of a copy. With a prefix, PreconditionFailed is raised instead of
    NotModified.

    Raises:
        S3Error: PreconditionFailed, NotModified.
    """
    is_copy = bool(prefix)
    match = request.header(f"{prefix}if-match")
    none_match = request.header(f"{prefix}if-none-match")
    unmodified = request.date_header(f"{prefix}if-unmodified-since")
    modified = request.date_header(f"{prefix}if-modified-since")
    changed_at = int(info.last_modified)
    if match is not None and not names_etag(match, info.etag):
        raise S3Error("PreconditionFailed", Condition="If-Match")
    if match is None and unmodified is not None and changed_at > unmodified:
        raise S3Error("PreconditionFailed", Condition="If-Unmodified-Since")
    if none_match is not None:
        is_stale = not names_etag(none_match, info.etag)
    else:
        is_stale = modified is None or changed_at > modified
    if not is_stale:
        raise S3Error("PreconditionFailed" if is_copy else "NotModified", ETag=info.etag)


def names_etag(condition: str, etag: str) -> bool:
    """Return whether an If-Match style list names `etag`, with or without quotes."""
    names = {name.strip().removeprefix("W/").strip('"') for name in condition.split(",")}
    return "*" in names or etag in names


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the (offset, length), in bytes, of the range that a Range header requests.

    Return None if S3 would ignore the header. `size` is the size of the object in bytes.
    Example: bytes=-3 of 10 bytes -> (7, 3).

    Raises:
        S3Error: InvalidRange, if no byte of the range is in the object.
    """
    found = _RANGE.fullmatch(header or "")
    if found is None or found.group(1) == found.group(2) == "":
        return None
    first, last = found.groups()
    if first == "":
        begin, end = max(size - int(last), 0), size
    else:
        begin, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < begin:
            return None
    if begin >= end:
        raise S3Error(
            "InvalidRange", RangeRequested=(header or "").strip(), ActualObjectSize=str(size)
        )
    return begin, end - begin


def checksum_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the x-amz-checksum headers of an object."""
    if not info.checksums:
        return {}
    headers = {f"x-amz-checksum-{name.lower()}": text for name, text in info.checksums.items()}
    return {**headers, "x-amz-checksum-type": info.attributes.checksum_type}


def _stretch(request: S3Request, info: ObjectInfo) -> tuple[int, int, int]:
    """Return (status, offset in bytes, length in bytes) of the requested part, range or whole object."""
    number = request.number("partNumber", 0, least=1, most=10_000)
    if number:
        return _part_stretch(info, number)
    found = parse_range(request.header("range"), info.size)
    return (200, 0, info.size) if found is None else (206, *found)


def _part_stretch(info: ObjectInfo, number: int) -> tuple[int, int, int]:
    if not info.parts and number == 1:
        return (206, 0, info.size)
    offset = 0
    for part in info.parts:
        if part.number == number:
            return (206, offset, part.size)
        offset += part.size
    raise S3Error("InvalidPartNumber", PartNumberRequested=str(number))


def _headers(
    request: S3Request, info: ObjectInfo, *, status: int, offset: int, length: int
) -> dict[str, str]:
    headers = {
        "Content-Type": info.content_type,
        "Content-Length": str(length),
        "ETag": f'"{info.etag}"',
        "Last-Modified": http_time(info.last_modified),
        "Accept-Ranges": "bytes",
        **info.attributes.headers,
        **{f"x-amz-meta-{name}": value for name, value in info.metadata.items()},
    }
    if status == 206:
        headers["Content-Range"] = f"bytes {offset}-{offset + length - 1}/{info.size}"
    if "partNumber" in request.query and info.parts:
        headers["x-amz-mp-parts-count"] = str(len(info.parts))
    if info.attributes.storage_class != "STANDARD":
        headers["x-amz-storage-class"] = info.attributes.storage_class
    if info.attributes.tags:
        headers["x-amz-tagging-count"] = str(len(info.attributes.tags))
    if length == info.size and (request.header("x-amz-checksum-mode") or "").upper() == "ENABLED":
        headers |= checksum_headers(info)
    for parameter, name in _OVERRIDES.items():
        if parameter in request.query:
            headers = {key: value for key, value in headers.items() if key.lower() != name}
            headers[name.title()] = request.query[parameter]
    return headers
