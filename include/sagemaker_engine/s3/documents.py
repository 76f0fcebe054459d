"""Small XML documents: parsers of client documents, and responses shared by buckets and objects."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.responses import Response, group, text, xml

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWNER_ID = hashlib.sha256(b"trainyard").hexdigest()
OWNER = group("Owner", text("ID", _OWNER_ID), text("DisplayName", "trainyard"))
_MAX_TAG_KEY, _MAX_TAG_VALUE = 128, 256


def read_xml(document: bytes, root: str) -> ET.Element:
    """Return the root of the parsed document, with namespaces removed from all tags.

    Raises:
        S3Error: MalformedXML, if the document is not XML or has a DOCTYPE, or if its root element is not
            `root`.
    """
    if b"<!DOCTYPE" in document:
        raise S3Error("MalformedXML")
    try:
        tree = ET.fromstring(document)  # noqa: S314 (no DOCTYPE, so no entities to expand)
    except ET.ParseError as error:
        raise S3Error("MalformedXML") from error
    for element in tree.iter():
        element.tag = element.tag.rpartition("}")[2]
    if tree.tag != root:
        raise S3Error("MalformedXML")
    return tree


def read_tags(document: bytes) -> dict[str, str]:
    """Return the tags of a Tagging document.

    Raises:
        S3Error: InvalidTag, MalformedXML.
    """
    tags: dict[str, str] = {}
    for tag in read_xml(document, "Tagging").iterfind("TagSet/Tag"):
        key, value = tag.findtext("Key") or "", tag.findtext("Value") or ""
        if not 0 < len(key) <= _MAX_TAG_KEY or len(value) > _MAX_TAG_VALUE or key in tags:
            raise S3Error("InvalidTag", TagKey=key, TagValue=value)
        tags[key] = value
    return tags


def tags_document(tags: Mapping[str, str]) -> Response:
    """Return the response that lists `tags`."""
    pairs = [group("Tag", text("Key", key), text("Value", tags[key])) for key in tags]
    return xml("Tagging", group("TagSet", *pairs))


def acl_document() -> Response:
    """Return the response with the only supported ACL: the owner has full control."""
    grantee = OWNER.replace("<Owner>", _GRANTEE).replace("</Owner>", "</Grantee>")
    grant = group("Grant", grantee, text("Permission", "FULL_CONTROL"))
    return xml("AccessControlPolicy", OWNER, group("AccessControlList", grant))


_GRANTEE = (
    '<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
)
