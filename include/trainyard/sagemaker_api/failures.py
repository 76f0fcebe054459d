"""Error classes of failed jobs and rejected calls, from the service's messages.

`failure_table` has the texts of failed jobs. A text without a matching row gives a plain JobFailedError.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainyard.errors import (
    CapacityError,
    ContractError,
    ExpiredCredentialsError,
    HungJobError,
    JobFailedError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    ScriptError,
    SpotInterruptionError,
    ThrottledError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.failure_table import (
    FAILURE_TABLE,
    RAISED,
    WAIT_STEP,
    FailureKind,
    FailureRow,
)
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot


NO_CAUSE = 2
"""The `cause_rank` of lines that name no cause."""


def failure_error(
    snapshot: JobSnapshot,
    *,
    log_lines: Iterable[str] = (),
    log_hint: str | None = None,
    stopped_for: StopCause | None = None,
) -> TrainingRunError:
    """Return the error of a job that ended without completing.

    It is a JobFailedError, a CapacityError or a QuotaExceededError.

    Args:
        snapshot: the ended job.
        log_lines: last lines of the hosts' logs, used if the job's failure reason names no cause. The reason is often
            only the loss of a peer.
        log_hint: location of the logs, for the next step.
        stopped_for: reason for which Trainyard stopped the job; None if Trainyard did not stop it.

    Raises:
        ContractError: the job completed, or has not ended.
    """
    if not snapshot.is_terminal or snapshot.succeeded:
        raise ContractError(
            "failure_error() was called for a job that did not fail",
            where=f"job {snapshot.name}",
            got=snapshot.status,
            allowed="the status of a job that ended without completing",
        )
    if snapshot.status == JobStatus.STOPPED:
        return _stopped(snapshot, stopped_for)
    reason = _reason(snapshot) or ""
    lines = list(log_lines)
    row = _cause(reason, "\n".join(lines))
    is_in_reason = re.search(RAISED, reason) and row is _match(reason)
    raised = None if is_in_reason else _raised_line(lines)
    if raised is None and row is not None and row is not _match(reason):
        raised = next((each for each in reversed(lines) if row.pattern.search(each)), None)
    if row is None:
        summary, kind = "the job failed for an unknown reason", JobFailedError
        hint = "read the job's log" + (f", {log_hint}" if log_hint else "")
        return _failed(snapshot, kind, summary, hint, raised=raised)
    hint = f"{row.next_step}; the job's log is {log_hint}" if log_hint else row.next_step
    return _failed(snapshot, row.error, row.summary, hint, raised=raised)


def cause_rank(log_lines: Iterable[str]) -> int:
    """Return the distance of a host's log lines from the cause of a failure.

    The distance is 0 for lines that name the cause, and 1 for lines about a failed collective. For other lines,
    it is `NO_CAUSE`.

    If a rank ends, the collectives of all other ranks fail. The messages of these ranks may be logged before
    the message of the rank that ended first.
    """
    row = _match("\n".join(log_lines))
    if row is None or row.is_weak:
        return NO_CAUSE
    return 1 if row.is_of_peers else 0


def names_exception(log_lines: Sequence[str]) -> bool:
    """Return whether a line names the exception that the script raised."""
    return _raised_line(log_lines) is not None


def telling_lines(log_lines: Sequence[str], *, most: int = 15) -> list[str]:
    """Return up to `most` lines, the last of which names an exception; without such a line, the last lines."""
    raised = _raised_line(log_lines)
    end = len(log_lines)
    if raised is not None:
        end -= list(reversed(log_lines)).index(raised)
    return list(log_lines[max(0, end - most) : end])


def service_error(
    code: str, message: str, *, operation: str, where: str | None = None
) -> TrainingRunError:
    """Return the error of a rejected call, from the code and message of botocore's `ClientError`."""
    if code in _THROTTLES:
        return ThrottledError(
            f"{operation} was throttled, or the service had an internal error",
            where=where,
            got=f"{code}: {message}",
            next_step="repeat the call after a wait; if it was throttled, call less often",
        )
    if code in _CAPACITY:
        return CapacityError(
            "SageMaker has no capacity for these instances at the moment",
            where=where,
            got=f"{code}: {message}",
            next_step=WAIT_STEP,
        )
    kind = ExpiredCredentialsError if code in EXPIRED else RejectedRequestError
    if code in _QUOTA:
        kind = QuotaTooSmallError if _is_beyond_quota(message) else QuotaExceededError
    return kind(
        f"the service rejected {operation}",
        operation=operation,
        code=code,
        where=where,
        got=f"{code}: {message}",
        next_step=_refusal_step(code, operation),
    )


def _refusal_step(code: str, operation: str) -> str:
    if code == "403":  # the answer to a HEAD has no body, so no message either
        return f"grant the caller {_ACTIONS.get(operation, operation)}"
    if code == "AccessDenied" and operation in _ACTIONS:
        return f"grant the caller {_ACTIONS[operation]}"
    return _REFUSAL_STEPS.get(code, "correct the request as the message describes")


_ACTIONS = {
    "HeadObject": "s3:GetObject",
    "HeadBucket": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}
"""IAM actions by operation, if their names differ."""


_THROTTLES = frozenset(
    {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"}
    | {
        "SlowDown",
        "ServiceUnavailable",
        "RequestThrottled",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "ServiceFailure",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
"""Codes of rejected credentials that have expired."""
WRONG_CREDENTIALS = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "InvalidSignatureException"}
)
"""Codes of rejected credentials that are wrong, or were replaced meanwhile."""
_CAPACITY = frozenset({"CapacityError", "InsufficientInstanceCapacity"})
_QUOTA = frozenset({"ResourceLimitExceeded"})
_REFUSAL_STEPS = {
    "ResourceLimitExceeded": "wait for other jobs to end, or request an increase in Service Quotas",
    "ResourceInUse": "choose another name, or attach to the job of this name",
    "AccessDeniedException": "grant the caller this action, and iam:PassRole on the execution role",
    "AccessDenied": "grant the caller this action",
    **dict.fromkeys(EXPIRED, "renew the connection's credentials"),
    **dict.fromkeys(WRONG_CREDENTIALS, "check the connection's credentials"),
    "ResourceNotFound": "check the name and the region",
}


# "The account-level service limit 'ml.p5.48xlarge for training job usage' is 0 Instances, with current utilization of 0
# Instances and a request delta of 1 Instances." (public threads, November 2026)
_QUOTA_TEXT = re.compile(r" is (\d+) Instances?,.* request delta of (\d+) Instances?", re.DOTALL)


def _is_beyond_quota(message: str) -> bool:
    """Return whether the request alone exceeds the whole quota: waiting for other jobs then does not help."""
    found = _QUOTA_TEXT.search(message)
    return found is not None and int(found.group(2)) > int(found.group(1))


def is_name_taken(code: str, message: str) -> bool:
    """Return whether a Create call was rejected because the job already exists; the caller then attaches to it."""
    return code == "ResourceInUse" or "already exists" in message.lower()


def is_unknown_job(code: str, message: str) -> bool:
    """Return whether a call was rejected because the job does not exist."""
    absence = re.search(r"not found|does not exist|could not find", message, re.IGNORECASE)
    return code == "ResourceNotFound" or (code == "ValidationException" and bool(absence))


def has_ended(code: str, message: str) -> bool:
    """Return whether a Stop call was rejected because the job has ended or is stopping already."""
    return code == "ValidationException" and "in status" in message


def _cause(reason: str, logs: str) -> FailureRow | None:
    """Return the table row for the cause of a failure, from its reason or its logs; None if no row fits.

    Three kinds of rows do not name a cause: an after-effect, a bare exit code, and the end of another rank.

    - If the reason matches a row that names a cause, return this row.
    - Otherwise, return the row that the logs match, unless it is an after-effect. A bare exit code in the logs
      counts only if the reason matches no row.
    - In all other cases, return the row that the reason matches, or None.
    """
    row = _match(reason)
    is_vague = row is None or row.is_weak or row.is_of_peers or _is_bare_exit(reason, row)
    deeper = _match(logs) if is_vague and logs else None
    if deeper is None or deeper.is_weak or (row is not None and _is_bare_exit(logs, deeper)):
        return row
    return deeper


def _match(text: str) -> FailureRow | None:
    """Return the table row that matches a text; a row for a lost peer only if no other row matches."""
    row = _first_match(text)
    if row is None or not row.is_of_peers:
        return row
    beside = "\n".join(each for each in text.splitlines() if not _is_of_peers(each))
    deeper = _first_match(beside)
    if deeper is None or deeper.is_weak or _is_bare_exit(beside, deeper):
        return row
    return deeper


def _first_match(text: str) -> FailureRow | None:
    return next((row for row in FAILURE_TABLE if row.pattern.search(text)), None)


def _is_of_peers(line: str) -> bool:
    return any(row.is_of_peers and row.pattern.search(line) for row in FAILURE_TABLE)


def _is_bare_exit(text: str, row: FailureRow) -> bool:
    """Return whether the text is an exit code without an exception."""
    return row.error is ScriptError and not re.search(RAISED, text)


def _raised_line(lines: Sequence[str]) -> str | None:
    """Return the last line that names an exception, or None; prefer lines that are not about a lost peer."""
    raised = [each for each in lines if re.search(RAISED, each)]
    own = [each for each in raised if not _is_of_peers(each)]
    return next(reversed(own or raised), None)


def _stopped(snapshot: JobSnapshot, stopped_for: StopCause | None) -> TrainingRunError:
    kind: FailureKind
    match _ending(snapshot):
        case "MaxRuntimeExceeded":
            limit = _limit("max_run", snapshot.max_run_s)
            kind = TimeLimitError
            summary = f"the job reached {limit} and was stopped"
            step = "raise max_run, or lower max_steps; a new job resumes from the last checkpoint"
            if snapshot.kind == "processing":
                step = "raise max_run, or reduce the job's work"
        case "MaxWaitTimeExceeded":
            limit = _limit("max_wait", snapshot.max_wait_s)
            summary = (
                f"the wait for spot capacity and the training together reached {limit}"
                if snapshot.started_at
                else f"no spot capacity became available within {limit}"
            )
            kind = SpotInterruptionError
            step = "raise max_wait, use another instance type, or switch spot off"
        case _ if stopped_for is StopCause.HUNG:
            summary, kind = "its training logged no progress and was stopped", HungJobError
            step = "a new attempt resumes from the last checkpoint; if it hangs again, find the call that blocks"
        case _ if stopped_for is StopCause.NO_CAPACITY:
            summary, kind, step = (
                "it got no instances within the max_wait_s of its tier in the capacity ladder",
                CapacityError,
                WAIT_STEP,
            )
        case _ if stopped_for is StopCause.WINDOW:
            summary, kind = (
                "it was stopped before the window of its training plan ended",
                CapacityError,
            )
            step = "a new attempt resumes from the last checkpoint, on the next tier or in the next window"
        case _ if stopped_for is StopCause.TIME:
            summary, kind = "its time was used up before a trial had a result", TimeLimitError
            step = "raise max_runtime_s, or shorten the trials"
        case _ if stopped_for is None and snapshot.reached_max_pending:
            limit = _limit("max_pending_time_in_seconds", snapshot.max_pending_s)
            summary, kind, step = f"it got no instances within {limit}", CapacityError, WAIT_STEP
        case _ if snapshot.kind in {"tuning", "automl"}:
            summary, kind = "the search was stopped", JobStoppedError
            step = "if the stop was not intended, clear the task: a new search begins"
        case _:
            summary, kind = "the job was stopped", JobStoppedError
            step = "if the stop was not intended, clear the task: training resumes from the last checkpoint"
    return _failed(snapshot, kind, summary, step)


def _ending(snapshot: JobSnapshot) -> str | None:
    """Return the secondary status; for a processing job that reached its time limit, `MaxRuntimeExceeded`."""
    reason = _reason(snapshot) or ""
    limits = (row for row in FAILURE_TABLE if row.error is TimeLimitError)
    has_timed_out = snapshot.secondary_status is None and any(
        row.pattern.search(reason) for row in limits
    )
    return "MaxRuntimeExceeded" if has_timed_out else snapshot.secondary_status


def _limit(name: str, seconds: int | None) -> str:
    return name if seconds is None else f"{name} ({format_duration(seconds)})"


def _failed(
    snapshot: JobSnapshot,
    kind: FailureKind,
    summary: str,
    next_step: str,
    *,
    raised: str | None = None,
) -> TrainingRunError:
    """Return the error of class `kind` for an ended job.

    `raised` is the log line that names the exception; None if the job's failure reason names it.
    """
    reason = _reason(snapshot)
    got = "\n".join(each for each in (reason, raised) if each) or None
    what = f"{snapshot.kind} job {snapshot.name} ended as {_ended_as(snapshot)}: {summary}"
    where = f"job {snapshot.name}"
    if issubclass(kind, QuotaExceededError):
        return kind(
            what,
            operation=f"Create{snapshot.kind.title()}Job",
            code="ResourceLimitExceeded",
            where=where,
            got=got,
            next_step=next_step,
        )
    if issubclass(kind, CapacityError):
        return kind(what, job_name=snapshot.name, where=where, got=got, next_step=next_step)
    return kind(
        what,
        job_name=snapshot.name,
        reason=reason,
        exit_code=_exit_code(reason or ""),
        got=got,
        next_step=next_step,
    )


def _reason(snapshot: JobSnapshot) -> str | None:
    """Return the service's reason and the container's exit message; None if there is neither."""
    texts = (snapshot.failure_reason, snapshot.exit_message)
    return "\n".join(dict.fromkeys(each for each in texts if each)) or None


def _ended_as(snapshot: JobSnapshot) -> str:
    finer = snapshot.secondary_status
    return snapshot.status if finer in {None, snapshot.status} else f"{snapshot.status} ({finer})"


def _exit_code(reason: str) -> int | None:
    found = re.search(r"exit ?code:?\s*(-?\d+)", reason, re.IGNORECASE)
    return int(found.group(1)) if found else None
