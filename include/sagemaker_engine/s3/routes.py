"""Routing of S3 requests to actions, by method, resource (bucket or object) and query parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sagemaker_engine.s3 import (
    bucket_actions as buckets,
    list_actions as listings,
    object_reads as reads,
    object_writes as writes,
    upload_actions as uploads,
)
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.request import S3Request
from sagemaker_engine.s3.responses import Response

Action = Callable[[ObjectStore, S3Request], Response]

_BUCKET: dict[tuple[str, str], Action] = {
    ("GET", ""): listings.list_objects,
    ("GET", "acl"): buckets.get_acl,
    ("GET", "list-type"): listings.list_objects_v2,
    ("GET", "location"): buckets.get_location,
    ("GET", "uploads"): listings.list_uploads,
    ("GET", "versions"): listings.list_versions,
    ("HEAD", ""): buckets.head_bucket,
    ("PUT", ""): buckets.create_bucket,
    ("PUT", "acl"): buckets.put_acl,
    ("POST", "delete"): writes.delete_objects,
    ("DELETE", ""): buckets.delete_bucket,
    **{("GET", name): partial(buckets.get_setting, name=name) for name in buckets.SETTINGS},
    **{("PUT", name): partial(buckets.put_setting, name=name) for name in buckets.SETTINGS},
    **{("DELETE", name): partial(buckets.delete_setting, name=name) for name in buckets.SETTINGS},
}
_OBJECT: dict[tuple[str, str], Action] = {
    ("GET", ""): reads.get_object,
    ("GET", "acl"): buckets.get_acl,
    ("GET", "attributes"): reads.get_object_attributes,
    ("GET", "tagging"): writes.get_tagging,
    ("GET", "uploadId"): listings.list_parts,
    ("HEAD", ""): reads.head_object,
    ("PUT", ""): writes.put_object,
    ("PUT", "acl"): buckets.put_acl,
    ("PUT", "tagging"): writes.put_tagging,
    ("PUT", "uploadId"): uploads.upload_part,
    ("POST", "uploads"): uploads.create_upload,
    ("POST", "uploadId"): uploads.complete_upload,
    ("DELETE", ""): writes.delete_object,
    ("DELETE", "tagging"): writes.delete_tagging,
    ("DELETE", "uploadId"): uploads.abort_upload,
}
_COPIES: dict[Action, Action] = {
    writes.put_object: writes.copy_object,
    uploads.upload_part: uploads.copy_part,
}
_UNSUPPORTED = {"legal-hold", "retention", "restore", "select", "torrent", "intelligent-tiering"}
_BUCKET_WORDS = {word for _, word in _BUCKET if word} | _UNSUPPORTED
_OBJECT_WORDS = {word for _, word in _OBJECT if word} | _UNSUPPORTED


def find_action(request: S3Request) -> Action:
    """Return the action for `request`.

    Raises:
        S3Error: NotImplemented, MethodNotAllowed, NoSuchVersion.
    """
    if not request.bucket:
        if request.method not in {"GET", "HEAD"}:
            raise S3Error("MethodNotAllowed", Method=request.method)
        return buckets.list_buckets
    version = request.query.get("versionId", "null")
    if version not in {"", "null"}:
        raise S3Error("NoSuchVersion", Key=request.key, VersionId=version)
    table, words = (_OBJECT, _OBJECT_WORDS) if request.key else (_BUCKET, _BUCKET_WORDS)
    word = next((word for word in request.query if word in words), "")
    if word in _UNSUPPORTED:
        raise S3Error("NotImplemented", Resource=word)
    action = table.get((request.method, word))
    if action is None:
        raise S3Error("MethodNotAllowed", Method=request.method, ResourceType=word or "OBJECT")
    if action in _COPIES and request.header("x-amz-copy-source"):
        return _COPIES[action]
    return action


def operation_of(request: S3Request, action: Action) -> str:
    """Return the API operation of a request, such as PutObject or GetBucketPolicy."""
    if isinstance(action, partial):
        verb = action.func.__name__.partition("_")[0]
        name = str(action.keywords["name"])
        return f"{verb.title()}Bucket{name[0].upper()}{name[1:]}"
    function = getattr(action, "__name__", "")
    owner = "object" if request.key else "bucket"
    words = _API_WORDS.get(function, function).replace("_acl", f"_{owner}_acl")
    return "".join(word.title() for word in words.split("_"))


_API_WORDS = {
    "list_versions": "list_object_versions",
    "get_location": "get_bucket_location",
    "get_tagging": "get_object_tagging",
    "put_tagging": "put_object_tagging",
    "delete_tagging": "delete_object_tagging",
    "create_upload": "create_multipart_upload",
    "copy_part": "upload_part_copy",
    "complete_upload": "complete_multipart_upload",
    "abort_upload": "abort_multipart_upload",
    "list_uploads": "list_multipart_uploads",
}
"""Full operation name of the actions whose function name is shorter."""
