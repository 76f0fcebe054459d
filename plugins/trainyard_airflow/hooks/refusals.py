"""Rejections by the service (`ClientError`) as typed errors, or as None for a missing resource."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import TrainingRunError
from trainyard.sagemaker_api.failures import EXPIRED, WRONG_CREDENTIALS, service_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def typed(error: ClientError, *, where: str) -> TrainingRunError:
    """Return the typed error for a rejection by the service."""
    code, message = code_and_message(error)
    return service_error(code, message, operation=error.operation_name, where=where)


def code_and_message(error: ClientError) -> tuple[str, str]:
    """Return the code and the message of a rejection; empty if the service sent none."""
    detail = error.response.get("Error", {})
    return str(detail.get("Code", "")), str(detail.get("Message", ""))


def has_old_credentials(error: ClientError) -> bool:
    """Return whether the service rejected the credentials because they are expired or wrong.

    The caller can then read the connection again, which may have newer credentials.
    """
    return code_and_message(error)[0] in EXPIRED | WRONG_CREDENTIALS


@contextmanager
def refusals_typed(where: str) -> Iterator[None]:
    """Convert a rejection by the service inside the `with` block to a typed error that names `where`.

    Raises:
        TrainingRunError: the service rejected a call.
    """
    try:
        yield
    except ClientError as error:
        ours = typed(error, where=where)
        raise ours from error


@contextmanager
def faults_logged(log: Any, what: str) -> Iterator[None]:
    """Log an error of AWS inside the `with` block as a warning that begins with `what`, instead of raising it.

    Args:
        log: a logger of the standard library, or of an operator.
        what: the consequence of the error.
    """
    try:
        yield
    except (TrainingRunError, BotoCoreError) as error:
        log.warning("%s: %s", what, error)


def answer_or_none(
    call: Callable[[], T], *, where: str, is_absent: Callable[[str, str], bool]
) -> T | None:
    """Return the result of the call, or None if the call is rejected because the resource does not exist.

    Args:
        call: one call of the service.
        where: the resource or the S3 address, for the error.
        is_absent: returns whether a rejection with this code and message means a missing resource.

    Raises:
        TrainingRunError: the service rejected the call for another reason.
    """
    try:
        return call()
    except ClientError as error:
        if is_absent(*code_and_message(error)):
            return None
        ours = typed(error, where=where)
        raise ours from error


def is_present_object(code: str, message: str) -> bool:  # noqa: ARG001  # as `is_absent_object`
    """Return whether S3 rejected a conditional put because the object exists, or is written at the same time."""
    return code in {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


def is_absent_object(code: str, message: str) -> bool:  # noqa: ARG001  # one of the two is enough
    """Return whether S3 rejected a call because the object does not exist."""
    return code in {"404", "NoSuchKey", "NotFound"}
