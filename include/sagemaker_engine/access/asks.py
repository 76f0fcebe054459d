"""IAM actions, resources and condition keys that a request needs.

Source: Service Authorization Reference, "Actions, resources, and condition keys" of SageMaker AI, S3, CloudWatch Logs,
ECR and IAM, and SageMaker's "API Permissions: Actions, Permissions, and Resources Reference" (2026-11).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import unescape

from sagemaker_engine.access.policy import Ask
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.request import read_request
from sagemaker_engine.s3.routes import find_action, operation_of
from sagemaker_engine.wire.json_service import read_body
from sagemaker_engine.wire.scope import is_form, region_of, service_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from wsgiref.types import WSGIEnvironment

    from sagemaker_engine.s3.request import S3Request

FREE = frozenset({"sts:GetCallerIdentity"})
"""Actions that need no permission."""

_PREFIXES = {"monitoring": "cloudwatch"}
"""IAM prefix of a service, if it is not the signing name."""
_FOLDERS = {
    "TrainingJobName": "training-job",
    "ProcessingJobName": "processing-job",
    "HyperParameterTuningJobName": "hyper-parameter-tuning-job",
    "AutoMLJobName": "automl-job",
    "ModelPackageGroupName": "model-package-group",
    "ModelPackageName": "model-package",
    "ModelPackageArn": "model-package",
    "ModelName": "model",
    "EndpointConfigName": "endpoint-config",
    "EndpointName": "endpoint",
    "TrainingPlanName": "training-plan",
    "TrainingPlanArn": "training-plan",
    "ReservedCapacityArn": "reserved-capacity",
}
"""Request member that names a resource -> the resource type in its ARN."""
_WITHOUT_RESOURCE = ("sagemaker:List", "sagemaker:Search")
_WITH_RESOURCE = {
    "sagemaker:ListTags",
    "sagemaker:ListTrainingJobsForHyperParameterTuningJob",
}
_JOB_KEYS = {
    "InstanceType": "sagemaker:InstanceTypes",
    "VolumeKmsKeyId": "sagemaker:VolumeKmsKey",
    "KmsKeyId": "sagemaker:OutputKmsKey",
    "Subnets": "sagemaker:VpcSubnets",
    "SecurityGroupIds": "sagemaker:VpcSecurityGroupIds",
    "EnableNetworkIsolation": "sagemaker:NetworkIsolation",
    "EnableInterContainerTrafficEncryption": "sagemaker:InterContainerTrafficEncryption",
    "MaxRuntimeInSeconds": "sagemaker:MaxRuntimeInSeconds",
}
"""Member of a Create request, at any depth -> its condition key."""
_S3_ACTIONS = {
    "ListBuckets": "ListAllMyBuckets",
    "HeadBucket": "ListBucket",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListParts": "ListMultipartUploadParts",
    "HeadObject": "GetObject",
    "GetObjectAttributes": "GetObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketLifecycle": "GetLifecycleConfiguration",
    "PutBucketLifecycle": "PutLifecycleConfiguration",
}
"""S3 operations whose IAM action has another name."""
_PARTS = {"UploadPart", "UploadPartCopy", "CompleteMultipartUpload"}
_KEYS_TO_DELETE = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_ACCESS_KEY = re.compile(r"Credential=([^/,&\s]+?)(?:/|%2F)")


Uploads = dict[str, dict[str, tuple[str, ...]]]
"""ARN of the object that a multipart upload creates -> condition keys of the request that began the upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestScope:
    """Account of the engine, and the default region for requests that name none."""

    account: str
    region: str


def access_key_of(environ: WSGIEnvironment) -> str | None:
    """Return the access key in the request's signature, or None if it is not signed."""
    signed = environ.get("HTTP_AUTHORIZATION") or environ.get("QUERY_STRING", "")
    found = _ACCESS_KEY.search(signed)
    return unquote(found[1]) if found else None


def asks_of(environ: WSGIEnvironment, place: RequestScope, uploads: Uploads) -> list[Ask]:
    """Return the IAM actions that a request needs; empty if its operation is unknown or needs no permission.

    The body of the request can be read again afterwards.

    Args:
        environ: The request.
        place: Account and default region.
        uploads: Condition keys of multipart uploads in progress; this function updates them.
    """
    target, _, operation = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
    service = service_of(environ) or target.lower()
    if service in {"s3", "s3express"}:
        return list(_asks_of_s3(environ, place, uploads))
    if not operation and not is_form(environ):
        return []
    body = read_body(environ)
    if not operation:
        form = {key: values[0] for key, values in parse_qs(body.decode("latin-1")).items()}
        operation, request = form.get("Action", ""), form
    else:
        request = _parsed(body)
    action = f"{_PREFIXES.get(service, service)}:{operation}"
    if not operation or action in FREE:
        return []
    arn = f"arn:aws:{service}:{region_of(environ) or place.region}:{place.account}:"
    if service == "sagemaker":
        return list(_asks_of_sagemaker(action, request, arn))
    return [Ask(action=action, resource=_resource_elsewhere(service, request, arn, place))]


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body or b"{}")
    except (ValueError, RecursionError):  # the service itself reports the error
        return {}
    return request if isinstance(request, dict) else {}


def _asks_of_sagemaker(action: str, request: dict[str, Any], arn: str) -> Iterator[Ask]:
    resource = _resource(action, request, arn)
    context = _context(request)
    yield Ask(action=action, resource=resource, context=context)
    if not action.startswith("sagemaker:Create"):
        return
    if request.get("Tags"):
        tagging = {**context, "sagemaker:TaggingAction": (action.partition(":")[2],)}
        yield Ask(action="sagemaker:AddTags", resource=resource, context=tagging)
    service = {"iam:PassedToService": ("sagemaker.amazonaws.com",)}
    for role in sorted(set(_found(request, "RoleArn"))):
        yield Ask(action="iam:PassRole", resource=role, context=service)
    for key in sorted(set(_found(request, "VolumeKmsKeyId"))):
        grant = {"kms:GrantIsForAWSResource": ("true",)}
        yield Ask(action="kms:CreateGrant", resource=key_arn(key, arn), context=grant)


def key_arn(key: str, arn: str) -> str:
    """Return the ARN of a KMS key that is given by ARN, by id or by `alias/...`.

    For an id or alias, the result has the partition, region and account of `arn`. That argument can be any
    ARN in the region and account of the request.
    """
    if key.startswith("arn:"):
        return key
    _, partition, _, region, account, _ = arn.split(":", 5)
    name = key if key.startswith("alias/") else f"key/{key}"
    return f"arn:{partition}:kms:{region}:{account}:{name}"


def _resource(action: str, request: dict[str, Any], arn: str) -> str:
    if action.startswith(_WITHOUT_RESOURCE) and action not in _WITH_RESOURCE:
        return "*"
    if "ResourceArn" in request:
        return str(request["ResourceArn"])
    for member, folder in _FOLDERS.items():
        if member in request:
            name = str(request[member])
            return name if name.startswith("arn:") else f"{arn}{folder}/{name}"
    return "*"


def _context(request: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    context: dict[str, tuple[str, ...]] = {}
    for member, key in _JOB_KEYS.items():
        if found := tuple(_texts(_found(request, member))):
            context[key] = found
    tags = [each for each in request.get("Tags") or () if isinstance(each, dict)]
    for each in tags:
        context[f"aws:RequestTag/{each.get('Key')}"] = (str(each.get("Value")),)
    if tags:
        context["aws:TagKeys"] = tuple(str(each.get("Key")) for each in tags)
    return context


def _found(given: object, member: str) -> Iterator[Any]:
    """Yield each value of the member named `member`, at any depth of the request `given`; skip empty values."""
    if isinstance(given, list):
        for each in given:
            yield from _found(each, member)
    elif isinstance(given, dict):
        for name, value in given.items():
            if name == member and value not in (None, "", []):
                yield value
            else:
                yield from _found(value, member)


def _texts(values: Iterator[Any]) -> Iterator[str]:
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            yield str(each).lower() if isinstance(each, bool) else str(each)


def _resource_elsewhere(
    service: str, request: dict[str, Any], arn: str, place: RequestScope
) -> str:
    if service == "logs" and (group := request.get("logGroupName")):
        return f"{arn}log-group:{group}:*"
    if service == "ecr" and (repository := request.get("repositoryName")):
        registry = request.get("registryId") or place.account
        return f"{arn.removesuffix(f'{place.account}:')}{registry}:repository/{repository}"
    if service == "iam" and (role := request.get("RoleName")):
        return f"arn:aws:iam::{place.account}:role/{role}"
    if service == "monitoring":
        return _resource_of_cloudwatch(request, arn, place)
    return str(request.get("TopicArn") or "*")


def _resource_of_cloudwatch(request: dict[str, Any], arn: str, place: RequestScope) -> str:
    if name := request.get("AlarmName") or request.get("AlarmNames.member.1"):
        return f"{arn.replace(':monitoring:', ':cloudwatch:')}alarm:{name}"
    if name := request.get("DashboardName") or request.get("DashboardNames.member.1"):
        return f"arn:aws:cloudwatch::{place.account}:dashboard/{name}"
    return "*"


def _asks_of_s3(environ: WSGIEnvironment, place: RequestScope, uploads: Uploads) -> Iterator[Ask]:
    try:
        request = read_request(environ)
        operation = operation_of(request, find_action(request))
    except S3Error:  # S3 itself reports the error
        return
    action = f"s3:{_S3_ACTIONS.get(operation, operation)}"
    bucket = f"arn:aws:s3:::{request.bucket}"
    if operation == "DeleteObjects":
        for key in _KEYS_TO_DELETE.findall(read_body(environ)):
            yield Ask(action=action, resource=f"{bucket}/{unescape(key.decode(errors='replace'))}")
        return
    if source := request.header("x-amz-copy-source"):
        yield Ask(action="s3:GetObject", resource=f"arn:aws:s3:::{unquote(source).lstrip('/')}")
    resource = f"{bucket}/{request.key}" if request.key else bucket
    context = _s3_context(request)
    if operation == "CreateMultipartUpload":
        uploads[resource] = context
    elif operation in _PARTS:  # parts are encrypted as the upload was created, and name no key
        context = uploads.get(resource, context)
    yield Ask(action=action, resource=resource if request.bucket else "*", context=context)
    if operation not in _PARTS and (key := context.get(_KEY_ID)):
        arn = f"arn:aws:kms:{request.region}:{place.account}:"
        yield Ask(action="kms:GenerateDataKey", resource=key_arn(key[0], arn))


_KEY_ID = "s3:x-amz-server-side-encryption-aws-kms-key-id"


def _s3_context(request: S3Request) -> dict[str, tuple[str, ...]]:
    context: dict[str, tuple[str, ...]] = {
        f"s3:{name}": (value,)
        for name in ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")
        if (value := request.header(name))
    }
    if not request.key and request.bucket and request.method in {"GET", "HEAD"}:
        context["s3:prefix"] = (request.query.get("prefix", ""),)
    return context
