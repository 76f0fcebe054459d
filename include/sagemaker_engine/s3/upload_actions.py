"""Multipart upload actions: create, upload part, copy part, complete and abort."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from sagemaker_engine.s3 import uploads
from sagemaker_engine.s3.checksums import DIGEST_BYTES, combine_crcs, composite
from sagemaker_engine.s3.documents import read_xml
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_reads import check_conditions, parse_range
from sagemaker_engine.s3.object_writes import (
    copy_source,
    read_attributes,
    write_condition,
    written_headers,
)
from sagemaker_engine.s3.payload import Payload
from sagemaker_engine.s3.responses import Response, iso_time, text, xml
from sagemaker_engine.s3.rows import find_object

if TYPE_CHECKING:
    from io import RawIOBase
    from typing import BinaryIO
    from xml.etree.ElementTree import Element

    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import ObjectInfo, PartInfo, UploadInfo
    from sagemaker_engine.s3.request import S3Request

_MAX_PARTS = 10_000
_MIN_PART_BYTES = 5 << 20
_ONLY_WHOLE = {"CRC64NVME"}
_ONLY_COMPOSITE = {"SHA1", "SHA256"}


class FileStretch:
    """Readable range of an open file; `length` and `offset` are in bytes."""

    def __init__(self, file: BinaryIO, *, offset: int, length: int) -> None:
        self._file = file
        self._file.seek(offset)
        self._left = length

    def readinto(self, buffer: memoryview) -> int:
        """Read into `buffer` and return the number of bytes: 0 at the end of the range."""
        reader = cast("RawIOBase", self._file)
        count = reader.readinto(buffer[: self._left]) or 0
        self._left -= count
        return count


def create_upload(store: ObjectStore, request: S3Request) -> Response:
    """Answer CreateMultipartUpload.

    Raises:
        S3Error: InvalidRequest, for a checksum algorithm or type that S3 does not support.
    """
    algorithm = (request.header("x-amz-checksum-algorithm") or "").upper()
    kind = (request.header("x-amz-checksum-type") or "").upper()
    if algorithm and algorithm not in DIGEST_BYTES:
        raise S3Error("InvalidRequest", "Checksum algorithm provided is unsupported.")
    if not kind:
        kind = "FULL_OBJECT" if algorithm in _ONLY_WHOLE else "COMPOSITE"
    if algorithm in (_ONLY_WHOLE if kind == "COMPOSITE" else _ONLY_COMPOSITE):
        raise S3Error(
            "InvalidRequest",
            f"The {kind} checksum type cannot be used with the {algorithm.lower()} checksum"
            " algorithm.",
        )
    upload = uploads.create_upload(
        store,
        request.bucket,
        request.key,
        attributes=replace(
            read_attributes(request), checksum_type=kind if algorithm else "FULL_OBJECT"
        ),
        checksum_algorithm=algorithm,
    )
    headers = (
        {"x-amz-checksum-algorithm": algorithm, "x-amz-checksum-type": kind} if algorithm else {}
    )
    return xml(
        "InitiateMultipartUploadResult",
        text("Bucket", upload.bucket),
        text("Key", upload.key),
        text("UploadId", upload.id),
        headers=headers,
    )


def upload_part(store: ObjectStore, request: S3Request) -> Response:
    """Answer UploadPart."""
    upload, number = _upload(store, request), _part_number(request)
    payload = Payload(request)
    with payload.stage(store.blobs) as staged:
        checksums = payload.verify(staged)
        part = uploads.add_part(store, upload, number, staged, checksums=checksums)
    headers = {f"x-amz-checksum-{name.lower()}": value for name, value in checksums.items()}
    return Response(headers={"ETag": f'"{part.etag}"', **headers})


def copy_part(store: ObjectStore, request: S3Request) -> Response:
    """Answer UploadPartCopy."""
    upload, number = _upload(store, request), _part_number(request)
    info, file = store.open_object(*copy_source(request))
    with file:
        check_conditions(request, info, prefix="x-amz-copy-source-")
        offset, length = _copied_range(request, info.size)
        stretch = cast("BinaryIO", FileStretch(file, offset=offset, length=length))
        algorithms = [upload.checksum_algorithm] if upload.checksum_algorithm else []
        with store.blobs.stage(stretch, algorithms=algorithms, size=length) as staged:
            value = staged.digests.value(upload.checksum_algorithm)
            checksums = {upload.checksum_algorithm: value} if value else {}
            part = uploads.add_part(store, upload, number, staged, checksums=checksums)
    return xml(
        "CopyPartResult",
        text("LastModified", iso_time(part.modified_at)),
        text("ETag", f'"{part.etag}"'),
        *(text(f"Checksum{name}", given) for name, given in checksums.items()),
    )


def complete_upload(store: ObjectStore, request: S3Request) -> Response:
    """Answer CompleteMultipartUpload. Completing an upload a second time gives the same response."""
    info = _completed_before(store, request) or _complete(store, request)
    return xml(
        "CompleteMultipartUploadResult",
        text("Location", f"/{info.bucket}/{info.key}"),
        text("Bucket", info.bucket),
        text("Key", info.key),
        text("ETag", f'"{info.etag}"'),
        *(text(f"Checksum{name}", value) for name, value in info.checksums.items()),
        *([text("ChecksumType", info.attributes.checksum_type)] if info.checksums else []),
        headers={k: v for k, v in written_headers(info).items() if k != "ETag"},
    )


def abort_upload(store: ObjectStore, request: S3Request) -> Response:
    """Answer AbortMultipartUpload."""
    uploads.abort_upload(store, _upload(store, request))
    return Response(status=204)


def _complete(store: ObjectStore, request: S3Request) -> ObjectInfo:
    upload = _upload(store, request)
    items = read_xml(Payload(request).document(), "CompleteMultipartUpload").findall("Part")
    parts = _chosen_parts(items, {part.number: part for part in uploads.list_parts(store, upload)})
    return uploads.complete_upload(
        store,
        upload,
        parts,
        checksums=_whole_checksum(request, upload, parts),
        condition=write_condition(request),
    )


def _completed_before(store: ObjectStore, request: S3Request) -> ObjectInfo | None:
    # An SDK that lost the response sends the request again. S3 repeats its response; so does the engine.
    with store.index.read() as db:
        info = find_object(db, request.bucket, request.key)
    return info if info is not None and info.upload_id == request.query["uploadId"] else None


def _upload(store: ObjectStore, request: S3Request) -> UploadInfo:
    return uploads.find_upload(store, request.bucket, request.key, request.query["uploadId"])


def _part_number(request: S3Request) -> int:
    return request.number("partNumber", 0, least=1, most=_MAX_PARTS)


def _copied_range(request: S3Request, size: int) -> tuple[int, int]:
    given = request.header("x-amz-copy-source-range")
    if given is None:
        return 0, size
    found = parse_range(given, size)
    if found is None:
        raise S3Error(
            "InvalidArgument",
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and"
            " last are the zero-based offsets of the first and last bytes to copy",
            ArgumentName="x-amz-copy-source-range",
            ArgumentValue=given,
        )
    return found


def _chosen_parts(items: list[Element], known: dict[int, PartInfo]) -> list[PartInfo]:
    if not items:
        raise S3Error("MalformedXML")
    parts: list[PartInfo] = []
    for item in items:
        number = item.findtext("PartNumber") or ""
        part = known.get(int(number)) if number.isdecimal() else None
        etag = (item.findtext("ETag") or "").strip('"')
        if part is None or part.etag != etag or not _checksums_agree(item, part):
            raise S3Error("InvalidPart", PartNumber=number, ETag=etag)
        if parts and part.number <= parts[-1].number:
            raise S3Error("InvalidPartOrder")
        parts.append(part)
    for part in parts[:-1]:
        if part.size < _MIN_PART_BYTES:
            raise S3Error(
                "EntityTooSmall",
                ProposedSize=str(part.size),
                MinSizeAllowed=str(_MIN_PART_BYTES),
                PartNumber=str(part.number),
                ETag=part.etag,
            )
    return parts


def _checksums_agree(item: Element, part: PartInfo) -> bool:
    claims = {name: item.findtext(f"Checksum{name}") for name in DIGEST_BYTES}
    return all(
        claim is None or part.checksums.get(name, claim) == claim for name, claim in claims.items()
    )


def _whole_checksum(
    request: S3Request, upload: UploadInfo, parts: list[PartInfo]
) -> dict[str, str]:
    algorithm = upload.checksum_algorithm
    values = [part.checksums.get(algorithm) for part in parts]
    given = [value for value in values if value is not None]
    claim = request.header(f"x-amz-checksum-{algorithm.lower()}") if algorithm else None
    if not algorithm or len(given) != len(parts):
        return {algorithm: claim} if claim else {}
    if upload.attributes.checksum_type == "COMPOSITE":
        whole = composite(algorithm, given)
    else:
        whole = combine_crcs(algorithm, [(v, p.size) for v, p in zip(given, parts, strict=True)])
    if whole is not None and claim is not None and claim != whole:
        raise S3Error(
            "BadDigest", f"The {algorithm} you specified did not match the calculated checksum."
        )
    value = whole or claim
    return {algorithm: value} if value else {}
