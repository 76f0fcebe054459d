"""From what the service says to the error class. The only module that looks at message text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from include.errors import TrainingRunError
    from include.sagemaker_api.snapshot import JobSnapshot


def failure_error(snapshot: JobSnapshot, *, log_hint: str | None = None) -> TrainingRunError:
    """Return the error for a job that ended without completing: CapacityError or a JobFailedError class.

    Args:
        log_hint: where the logs are, put into the next step.

    Raises:
        ContractError: the job completed or has not ended.
    """
    raise NotImplementedError


def service_error(
    code: str, message: str, *, operation: str, where: str | None = None
) -> TrainingRunError:
    """Return the error for a refused call (botocore `ClientError`'s code and message)."""
    raise NotImplementedError


def is_name_taken(code: str, message: str) -> bool:
    """Return whether a Create call was refused because the job already exists: re-attach to it."""
    return code == "ResourceInUse" or "already exists" in message.lower()


def is_unknown_job(code: str, message: str) -> bool:
    """Return whether a Describe or Stop call was refused because there is no such job."""
    return code in {"ResourceNotFound", "ValidationException"} and "not found" in message.lower()
