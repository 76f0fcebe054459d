"""Lookup of the stored fault that applies to an S3 request.

The request comes from an HTTP client, or from the agent that moves a job's data.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sagemaker_engine.faults.model import FaultKind
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.fault import S3Fault

if TYPE_CHECKING:
    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.faults.store import FaultStore

_KINDS = (FaultKind.S3_ERROR, FaultKind.S3_STALL, FaultKind.S3_TRUNCATE)
_READS = "GetObject"
_CODES = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}


def find_fault(fault_store: FaultStore, operation: str, bucket: str, key: str) -> S3Fault | None:
    """Return the effect of a stored fault on one request, after recording that it occurred; None without a fault.

    Args:
        fault_store: The stored faults.
        operation: API name, such as PutObject.
        bucket: Empty for ListBuckets.
        key: Key of the object, or prefix of a listing; empty if the request names neither.
    """
    for fault in fault_store.open_for_requests(_KINDS):
        if hits(fault, operation, bucket, key) and fault_store.claim(fault):
            return _s3_fault(fault)
    return None


def hits(fault: Fault, operation: str, bucket: str, key: str) -> bool:
    """Return whether the fault applies to this operation on this key. s3_truncate applies to GetObject only."""
    if fault.what is FaultKind.S3_TRUNCATE and operation != _READS:
        return False
    return (
        fnmatchcase(operation, fault.operation or "*")
        and fault.bucket in {None, bucket}
        and key.startswith(fault.key_prefix)
    )


def _s3_fault(fault: Fault) -> S3Fault:
    match fault.what:
        case FaultKind.S3_STALL:
            return S3Fault(stall_s=fault.duration_s or 0.0)
        case FaultKind.S3_TRUNCATE:
            return S3Fault(halves=True)
        case FaultKind.S3_ERROR:
            code = fault.code or _CODES.get(fault.status, "InternalError")
            return S3Fault(error=S3Error.of_status(fault.status, code))
        case _:
            raise AssertionError(f"{fault.what} is not a fault of S3")
