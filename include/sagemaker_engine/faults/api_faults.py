"""Faults of service requests other than S3's: throttling and exceeded quotas.

A fault can apply to any operation that a request names in X-Amz-Target (SageMaker, CloudWatch Logs, EventBridge, ...)
or as the Action of a form (STS, IAM, SNS, ...). CloudWatch's binary protocol has no such name, so no fault applies to
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from sagemaker_engine.faults.model import FaultKind
from sagemaker_engine.services.quotas import Quota, over
from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.json_service import read_body
from sagemaker_engine.wire.refusal import answer_refusal
from sagemaker_engine.wire.scope import is_form, service_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.faults.store import FaultStore

_KINDS = (FaultKind.THROTTLE, FaultKind.RESOURCE_LIMIT)
_CREATES = ("CreateTrainingJob", "CreateProcessingJob")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """Operation and body of a request; `wants_xml` means that its response is XML."""

    target: str
    operation: str
    wants_xml: bool
    body: bytes


def answer_fault(
    fault_store: FaultStore, environ: WSGIEnvironment, start_response: StartResponse
) -> list[bytes] | None:
    """Answer the request with a stored fault's error and return the body; return None if no fault applies."""
    faults = fault_store.open_for_requests(_KINDS)
    asked = _asked(environ) if faults else None
    if asked is None:
        return None
    for fault in faults:
        is_hit = hits(fault, target=asked.target, operation=asked.operation)
        if is_hit and fault_store.claim(fault):
            return answer_refusal(_error(fault, asked), environ, start_response)
    return None


def hits(fault: Fault, *, target: str, operation: str) -> bool:
    """Return whether the fault applies to a request with this target and operation.

    A fault with an `operation` (a name or a glob) applies to the operations that match it. Without an
    `operation`, a `throttle` fault applies to all SageMaker operations, and a `resource_limit` fault applies to
    CreateTrainingJob and CreateProcessingJob.
    """
    if fault.operation is not None:
        return fnmatchcase(operation, fault.operation)
    if fault.what is FaultKind.RESOURCE_LIMIT:
        return operation in _CREATES
    return target == "SageMaker"


def _asked(environ: WSGIEnvironment) -> ServiceRequest | None:
    """Return the operation and the body of a request; None if it is for S3, or cannot name an operation.

    A request can name an operation in X-Amz-Target, or as the Action of a form. For a form without an Action,
    the operation is empty. The request's body can still be read afterwards.
    """
    target, _, operation = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
    wants_xml = is_form(environ)
    if (not operation and not wants_xml) or service_of(environ) == "s3":
        return None
    body = read_body(environ)
    if not operation:
        operation = parse_qs(body.decode("latin-1")).get("Action", [""])[0]
    return ServiceRequest(target=target, operation=operation, wants_xml=wants_xml, body=body)


def _error(fault: Fault, asked: ServiceRequest) -> ServiceError:
    if fault.what is FaultKind.RESOURCE_LIMIT:
        return _limit(asked)
    if fault.code is not None:
        return ServiceError(fault.code, "Rate exceeded", status=fault.status)
    return ServiceError("Throttling" if asked.wants_xml else "ThrottlingException", "Rate exceeded")


def _limit(asked: ServiceRequest) -> ServiceError:
    """Return SageMaker's error for a Create request that exceeds the account's quota."""
    try:
        request = json.loads(asked.body or b"{}")
    except ValueError:
        request = {}
    resources = _resources(request)
    usage = "processing job usage" if "ProcessingJobName" in request else "training job usage"
    spot = "spot " if request.get("EnableManagedSpotTraining") else ""
    instance_type = resources.get("InstanceType", "ml.m5.large")
    count = resources.get("InstanceCount", 1)
    quota = Quota(name=f"{instance_type} for {spot}{usage}", value=count)
    return ServiceError(*over(quota, used=count, delta=count))


def _resources(request: dict[str, Any]) -> dict[str, Any]:
    resources: dict[str, Any] = (
        request.get("ProcessingResources", {}).get("ClusterConfig")
        or request.get("ResourceConfig")
        or {}
    )
    groups = resources.get("InstanceGroups")
    return dict(groups[0]) if groups else resources
