"""FailureReason texts in the service's wording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.channels.container_files import OddFileError
from sagemaker_engine.channels.retrier import is_transient
from sagemaker_engine.jobs.life_cycle import MAX_REASON_CHARS

if TYPE_CHECKING:
    from sagemaker_engine.channels.container_files import ContainerFiles
    from sagemaker_engine.channels.locations import InputDataError
    from sagemaker_engine.s3.errors import S3Error
    from sagemaker_engine.sandbox.cluster import InstanceExit


MAX_BYTES_OF_CHAR = 4
EMPTY_MESSAGE = 'ErrorMessage ""'
KILLED = "OutOfMemory: Process killed by SIGKILL (signal 9)"
"""The toolkit's text for exit code 137. The toolkit writes no text if its own child was killed."""
ENGINE_ABSENCE_S = 120.0
"""Seconds for which a job continues without an engine before its runner stops it."""
ABANDONED = (
    f"InternalServerError: No engine was running for {ENGINE_ABSENCE_S:.0f} s, so the job was stopped. "
    "Start the engine and submit the job again."
)


INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."


def data_failure(what: str, error: InputDataError) -> str:
    """Return the FailureReason of a job whose data was not available.

    The reason begins with InternalServerError if the service is at fault, otherwise with ClientError. `what` is
    the text for the failed action, such as `Data download failed`.

    Example: `ClientError: Data download failed: cannot read s3://b/k: AccessDenied (403): Access Denied`.
    """
    if error.is_service_fault:
        return f"{INTERNAL_ERROR} ({what}: {error})"
    return f"ClientError: {what}: {error}"


def s3_failure(what: str, error: S3Error) -> str:
    """Return the FailureReason of a job after S3 rejected one of its uploads.

    The text has the same form as that of `data_failure`.
    """
    cause = f"{error.code} ({error.status}): {error}"
    return (
        f"{INTERNAL_ERROR} ({what}: {cause})"
        if is_transient(error)
        else f"ClientError: {what}: {cause}"
    )


def algorithm_error(ended: InstanceExit, words: str, *, last_line: str = "") -> str:
    """Return the FailureReason of a job whose program failed.

    `words` is the content of the container's /opt/ml/output/failure, and `last_line` is the last line of the
    program's log. The result contains `words`, then the exit code. The engine fills in a text if `words` is
    empty or contains an empty ErrorMessage. If SIGKILL ended the program, this text is the constant `KILLED`,
    otherwise it is `last_line`. AWS itself never fills in the last line. The text before the exit code is cut
    so that the result has at most 1024 characters, the API's limit.
    """
    prefix, suffix = "AlgorithmError: ", f", exit code: {ended.code}"
    text = words or _without_words(ended.code, last_line)
    if EMPTY_MESSAGE in text:
        killed = "\nExitCode -9\n" in text
        text = text.replace(EMPTY_MESSAGE, f'ErrorMessage "{KILLED if killed else last_line}"', 1)
    room = MAX_REASON_CHARS - len(prefix) - len(suffix)
    return f"{prefix}{text[:room]}{suffix}"


def _without_words(code: int, last_line: str) -> str:
    return KILLED if code == 137 else last_line


def read_words(files: ContainerFiles, path: str) -> str:
    """Return the first 1024 characters of a file of an instance; empty if it is not a regular file."""
    try:
        with files.open(path) as file:
            data = file.read(MAX_REASON_CHARS * MAX_BYTES_OF_CHAR)
    except (OddFileError, OSError):
        return ""
    return data.decode("utf-8", "replace")[:MAX_REASON_CHARS].strip()
