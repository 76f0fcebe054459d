"""Values of the store: objects, buckets, parts and multipart uploads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_KEY_BYTES = 1024
DEFAULT_CONTENT_TYPE = "binary/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAttributes:
    """Attributes that the writer of an object sets in addition to its bytes.

    `headers` are the stored response headers, keyed by lower-case name (cache-control, ...).
    `checksums` maps an algorithm's name (CRC32, SHA256, ...) to the base64 value that S3 returns.
    """

    content_type: str = DEFAULT_CONTENT_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = "STANDARD"
    checksums: Mapping[str, str] = field(default_factory=dict)
    checksum_type: str = "FULL_OBJECT"

    def to_json(self) -> str:
        """Return the attributes as JSON, without members that have their default value."""
        return json.dumps({k: v for k, v in asdict(self).items() if v != _DEFAULTS[k]})

    @classmethod
    def from_json(cls, text: str) -> ObjectAttributes:
        """Return the attributes that `to_json` wrote."""
        return _PLAIN if text == "{}" else cls(**json.loads(text))


_PLAIN = ObjectAttributes()
_DEFAULTS: dict[str, Any] = asdict(_PLAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """One uploaded part. `etag` is the hexadecimal MD5 of its bytes; `modified_at` is in epoch seconds."""

    number: int
    size: int
    etag: str
    blob: str = ""
    modified_at: float = 0.0
    checksums: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One stored object. `etag` is without quotes; `last_modified` is in epoch seconds."""

    bucket: str
    key: str
    size: int
    etag: str
    last_modified: float
    blob: str
    attributes: ObjectAttributes
    parts: tuple[PartInfo, ...] = ()
    upload_id: str = ""
    """The multipart upload that created the object; empty if a single PutObject did."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The user's metadata, keyed by lower-case name without `x-amz-meta-`."""
        return self.attributes.metadata

    @property
    def content_type(self) -> str:
        """The media type that the writer declared, or S3's default."""
        return self.attributes.content_type

    @property
    def checksums(self) -> Mapping[str, str]:
        """Base64 checksum per algorithm, as S3 returns them."""
        return self.attributes.checksums


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPrefix:
    """Keys grouped by a delimiter: all of them begin with `prefix`."""

    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketInfo:
    """One bucket. `created_at` is in epoch seconds."""

    name: str
    region: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadInfo:
    """One unfinished multipart upload. `checksum_algorithm` is empty if the client requested none."""

    id: str
    bucket: str
    key: str
    started_at: float
    attributes: ObjectAttributes
    checksum_algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCondition:
    """Condition of a write, checked against the current object under its key. The default allows any write.

    `must_be_absent` requires that there is no object. `etag` requires an object with this ETag, or any object
    if it is "*".
    """

    must_be_absent: bool = False
    etag: str | None = None


ALWAYS = WriteCondition()
