"""From what the service says to the error class. The only module that looks at message text.

The texts are those of AWS's training toolkit (sagemaker-training 5.1.4), of torchrun (torch 2.13)
and of the service (its documentation and public threads, November 2026). What no row knows stays a
plain JobFailedError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from include.errors import (
    CapacityError,
    ContractError,
    DataError,
    DeviceMemoryError,
    InfrastructureError,
    JobFailedError,
    JobStoppedError,
    QuotaExceededError,
    RejectedRequestError,
    ScriptError,
    SpotInterruptionError,
    ThrottledError,
    TimeLimitError,
    TrainingRunError,
)
from include.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from include.sagemaker_api.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One cause: how its text looks, which error it is, what the reader should do.

    Attributes:
        is_weak: the text is an after-effect (a peer that vanished); a cause in the logs goes before
            it.
    """

    pattern: re.Pattern[str]
    error: type[JobFailedError | CapacityError | QuotaExceededError]
    says: str
    next_step: str
    is_weak: bool = False


def _row(
    pattern: str,
    error: type[JobFailedError | CapacityError | QuotaExceededError],
    says: str,
    next_step: str,
    *,
    is_weak: bool = False,
) -> FailureRow:
    return FailureRow(
        pattern=re.compile(pattern, re.IGNORECASE | re.MULTILINE),
        error=error,
        says=says,
        next_step=next_step,
        is_weak=is_weak,
    )


_MEMORY_STEP = "lower micro_batch_size (keep global_batch_size), or take a larger instance type"
_WAIT_STEP = "retry later, take another instance type, or allow several types"
_RETRY_STEP = "retry: training resumes from the last checkpoint; if it repeats, read the host's log"
_SCRIPT_STEP = "read the traceback in the log and fix the script or its hyperparameters"

# An exception by its name, but not the wrappers that the service and its toolkit put around every
# failure.
_RAISED = r"\b(?!AlgorithmError|ClientError|ExecuteUserScriptError)\w+(Error|Exception)\b: "

# First match wins.
FAILURE_TABLE: tuple[FailureRow, ...] = (
    _row(
        r"CapacityError|InsufficientInstanceCapacity|Unable to provision requested ML compute",
        CapacityError,
        "the service has no such instances at the moment",
        _WAIT_STEP,
    ),
    _row(
        r"ResourceLimitExceeded",
        QuotaExceededError,
        "the account's quota for this instance type is used up",
        "wait for other jobs to end, or ask for more in Service Quotas",
    ),
    _row(
        r"InternalServerError|internal error|InternalFailure|faulty (host|instance|node)",
        InfrastructureError,
        "the service had an internal error",
        _RETRY_STEP,
    ),
    _row(
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|DefaultCPUAllocator: (not enough|can't allocate) memory|\bMemoryError\b|OOMKilled",
        DeviceMemoryError,
        "a rank ran out of memory",
        _MEMORY_STEP,
    ),
    _row(
        r"Signal \d+ \((SIGKILL|SIGTERM|SIGHUP|SIGBUS)\) received by PID"
        r"|exitcode\s*:\s*-(9|15|1|7)\b|died with <Signals\.SIG(KILL|TERM|HUP|BUS)",
        InfrastructureError,
        "a rank was killed from outside the script",
        _RETRY_STEP,
    ),
    _row(
        r"OutOfMemory: Process killed by SIGKILL|exit code:? 137\b|ExitCode:? 137\b",
        DeviceMemoryError,
        "the container was killed (exit code 137), most often because the host ran out of memory",
        _MEMORY_STEP,
        is_weak=True,
    ),
    _row(
        r"exceeded MaxRuntimeInSeconds|MaxRuntimeExceeded",
        TimeLimitError,
        "the job reached max_run and was stopped",
        "raise max_run, or give the job less to do",
    ),
    _row(
        r"Watchdog caught collective operation timeout|ProcessGroup\w+ .*timed out"
        r"|DistBackendError|ncclRemoteError|ncclSystemError",
        InfrastructureError,
        "a collective between the ranks failed or hung",
        _RETRY_STEP,
    ),
    _row(
        r"(Data|Model|Checkpoint)s? download (failed|timed out)|Failed to download data"
        r"|Training data cannot be used"
        r"|No S3 objects? (was|were)? ?found|ClientError:.*(S3|AccessDenied|NoSuchKey|NoSuchBucket)"
        r"|ClientError: Please (ensure|use) .*(data|S3)|mount.*(EFS|FSx|file system).*fail",
        DataError,
        "an input could not be read",
        "check that the prefix has objects and that the execution role may read them",
    ),
    _row(
        r"PeerError|Another rank failed|Connection closed by peer|Connection reset by peer"
        r"|Broken pipe|Socket Timeout|recvBytes|NCCL WARN.*peer",
        InfrastructureError,
        "a rank lost its peers",
        _RETRY_STEP,
        is_weak=True,
    ),
    _row(
        r"ExecuteUserScriptError|Traceback \(most recent call last\)|"
        + _RAISED
        + r"|ExitCode:? [1-9]|exit code:? [1-9]|exitcode\s*:\s*([1-9]|-\d)|Framework Error",
        ScriptError,
        "the training script failed",
        _SCRIPT_STEP,
    ),
)


def failure_error(
    snapshot: JobSnapshot, *, log_lines: Iterable[str] = (), log_hint: str | None = None
) -> TrainingRunError:
    """Return the error of a job that ended without completing: a JobFailedError or a CapacityError.

    Args:
        snapshot: the ended job.
        log_lines: last lines of the hosts' logs. They decide where the reason alone does not: one
            host's reason often only says that its peers went away.
        log_hint: where the logs are, put into the next step.

    Raises:
        ContractError: the job completed, or has not ended.
    """
    if not snapshot.is_terminal or snapshot.succeeded:
        raise ContractError(
            "only an ended job that did not complete has a failure",
            where=f"job {snapshot.name}",
            got=snapshot.status,
        )
    if snapshot.status == "Stopped":
        return _stopped(snapshot)
    reason = snapshot.failure_reason or snapshot.exit_message or ""
    row = _cause(reason, "\n".join(log_lines))
    if row is None:
        says, kind = "the job failed for a reason nobody here knows", JobFailedError
        return _failed(snapshot, kind, says, log_hint or "read the job's log")
    hint = f"{row.next_step}; log: {log_hint}" if log_hint else row.next_step
    return _failed(snapshot, row.error, row.says, hint)


def service_error(
    code: str, message: str, *, operation: str, where: str | None = None
) -> TrainingRunError:
    """Return the error of a refused call, from botocore's `ClientError` code and message."""
    if code in _THROTTLES:
        return ThrottledError(
            f"{operation} was throttled",
            where=where,
            got=f"{code}: {message}",
            next_step="call less often; the same call succeeds after a wait",
        )
    if code in _CAPACITY:
        return CapacityError(
            "the service has no such instances at the moment",
            where=where,
            got=f"{code}: {message}",
            next_step=_WAIT_STEP,
        )
    kind = QuotaExceededError if code in _QUOTA else RejectedRequestError
    return kind(
        f"the service refused {operation}",
        operation=operation,
        code=code,
        where=where,
        got=f"{code}: {message}",
        next_step=_REFUSAL_STEPS.get(code, "fix what the message names"),
    )


_THROTTLES = frozenset(
    {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"}
    | {
        "SlowDown",
        "ServiceUnavailable",
        "RequestThrottled",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
    }
)
_CAPACITY = frozenset({"CapacityError", "InsufficientInstanceCapacity"})
_QUOTA = frozenset({"ResourceLimitExceeded"})
_REFUSAL_STEPS = {
    "ResourceLimitExceeded": "wait for other jobs to end, or ask for more in Service Quotas",
    "ResourceInUse": "the name exists already: attach to that job",
    "AccessDeniedException": "grant the caller this action, and iam:PassRole on the execution role",
    "AccessDenied": "grant the caller this action",
    "UnrecognizedClientException": "check the connection's credentials",
    "ExpiredTokenException": "renew the connection's credentials",
    "ResourceNotFound": "check the name and the region",
}


def is_name_taken(code: str, message: str) -> bool:
    """Return whether a Create call was refused because the job already exists: attach to it."""
    return code == "ResourceInUse" or "already exists" in message.lower()


def is_unknown_job(code: str, message: str) -> bool:
    """Return whether a call was refused because there is no such job."""
    says_so = re.search(r"not found|does not exist|could not find", message, re.IGNORECASE)
    return code == "ResourceNotFound" or (code == "ValidationException" and bool(says_so))


def is_already_ended(code: str, message: str) -> bool:
    """Return whether a Stop call was refused because the job has ended or is stopping already."""
    says_so = re.search(r"in status|cannot be stopped|already|Completed|Failed|Stop", message)
    return code == "ValidationException" and bool(says_so) and not is_unknown_job(code, message)


def _cause(reason: str, logs: str) -> FailureRow | None:
    """Return the row of the reason; where it is silent or an after-effect, that of the logs."""
    row = _match(reason)
    is_vague = row is None or row.is_weak or _is_bare_exit(reason, row)
    deeper = _match(logs) if is_vague and logs else None
    return deeper if deeper and not deeper.is_weak else row


def _match(text: str) -> FailureRow | None:
    return next((row for row in FAILURE_TABLE if row.pattern.search(text)), None)


def _is_bare_exit(reason: str, row: FailureRow) -> bool:
    """Return whether the reason is an exit code and nothing about what was raised."""
    return row.error is ScriptError and not re.search(_RAISED, reason)


def _stopped(snapshot: JobSnapshot) -> TrainingRunError:
    match snapshot.secondary_status:
        case "MaxRuntimeExceeded":
            limit = _limit("max_run", snapshot.max_run_s)
            kind: type[JobFailedError] = TimeLimitError
            says = f"the job reached {limit} and was stopped"
            step = "raise max_run, or lower max_steps; a new job resumes from the last checkpoint"
        case "MaxWaitTimeExceeded":
            limit = _limit("max_wait", snapshot.max_wait_s)
            never = "" if snapshot.started_at else " without ever getting capacity"
            says = f"spot waiting and running together reached {limit}{never}"
            kind = SpotInterruptionError
            step = "raise max_wait, take another instance type, or switch spot off"
        case _:
            says, kind = "the job was stopped", JobStoppedError
            step = "if nobody meant it, clear the task: training resumes from the last checkpoint"
    return _failed(snapshot, kind, says, step)


def _limit(name: str, seconds: int | None) -> str:
    return name if seconds is None else f"{name} ({format_duration(seconds)})"


def _failed(
    snapshot: JobSnapshot,
    kind: type[JobFailedError | CapacityError | QuotaExceededError],
    says: str,
    next_step: str,
) -> TrainingRunError:
    reason = snapshot.failure_reason or snapshot.exit_message
    what = f"{snapshot.kind} job {snapshot.name} ended as {_ended_as(snapshot)}: {says}"
    where = f"job {snapshot.name}"
    if issubclass(kind, QuotaExceededError):
        return kind(
            what,
            operation=f"Create{snapshot.kind.title()}Job",
            code="ResourceLimitExceeded",
            where=where,
            got=reason,
            next_step=next_step,
        )
    if issubclass(kind, CapacityError):
        return kind(what, job_name=snapshot.name, where=where, got=reason, next_step=next_step)
    return kind(
        what,
        job_name=snapshot.name,
        reason=reason,
        exit_code=_exit_code(reason or ""),
        next_step=next_step,
    )


def _ended_as(snapshot: JobSnapshot) -> str:
    finer = snapshot.secondary_status
    return snapshot.status if finer in {None, snapshot.status} else f"{snapshot.status} ({finer})"


def _exit_code(reason: str) -> int | None:
    found = re.search(r"exit ?code:?\s*(-?\d+)", reason, re.IGNORECASE)
    return int(found.group(1)) if found else None
