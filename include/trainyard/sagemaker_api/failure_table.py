"""Messages of each cause of a failed job, as written by the service, the toolkit and torchrun.

The texts are those of AWS's training toolkit (sagemaker-training 5.1.4), of torchrun (torch 2.13)
and of the service (its documentation and public threads, November 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainyard.errors import (
    CapacityError,
    DataError,
    DeviceMemoryError,
    InfrastructureError,
    JobFailedError,
    QuotaExceededError,
    ScriptError,
    TimeLimitError,
)

FailureKind = type[JobFailedError | CapacityError | QuotaExceededError]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One cause: the pattern of its text, its error class and the next step.

    Attributes:
        summary: the cause in words, for the error's message.
        is_weak: whether the text is an after-effect, such as a lost peer; a cause in the logs takes precedence.
        is_of_peers: whether the text reports the end of another rank; any other cause on any host takes precedence.
    """

    pattern: re.Pattern[str]
    error: FailureKind
    summary: str
    next_step: str
    is_weak: bool = False
    is_of_peers: bool = False


def _row(
    pattern: str,
    error: FailureKind,
    summary: str,
    next_step: str,
    *,
    is_weak: bool = False,
    is_of_peers: bool = False,
) -> FailureRow:
    return FailureRow(
        pattern=re.compile(pattern, re.IGNORECASE | re.MULTILINE),
        error=error,
        summary=summary,
        next_step=next_step,
        is_weak=is_weak,
        is_of_peers=is_of_peers,
    )


_MEMORY_STEP = "lower micro_batch_size (keep global_batch_size), or use a larger instance type"
WAIT_STEP = "retry later, use another instance type, or allow several types"
_RETRY_STEP = (
    "retry: training resumes from the last checkpoint; if the failure repeats, read the host's log"
)
_KILLED_STEP = (
    "retry: training resumes from the last checkpoint; if the failure repeats, give the ranks more memory "
    "(the kernel kills a process that uses more than its host has)"
)
_VOLUME_STEP = "raise volume_size_gb (volume_size in a job's spec); if the type has NVMe disks, choose a larger type"
_SCRIPT_STEP = "read the traceback in the log and fix the script or its hyperparameters"

# An exception by its name, but not the wrappers that the service, its toolkit and torchrun put
# around every failure; or argparse's refusal of a hyperparameter.
RAISED = (
    r"(?:\b(?!AlgorithmError|ClientError|ExecuteUserScriptError|ChildFailedError)"
    r"\w+(Error|Exception)\b: |\.py: error: )"
)
# SIGKILL or SIGBUS on the rank that failed first. torchrun itself kills the ranks that are left
# over, so a signal elsewhere in its table is no evidence.
KILLED = (
    r"Root Cause \(first observed failure\):[\s\S]{0,300}?exitcode\s*:\s*-[97]\b"
    r"|failed \(exitcode: -[97]\)|died with <Signals\.SIG(KILL|BUS)"
    r"|\A(?![\s\S]*Root Cause)[\s\S]*(exitcode\s*:\s*-[97]\b|Signal [97] \(SIG)"
)

# First match wins.
FAILURE_TABLE: tuple[FailureRow, ...] = (
    _row(
        r"CapacityError|InsufficientInstanceCapacity|Unable to provision requested ML compute",
        CapacityError,
        "the service has no capacity for these instances at the moment",
        WAIT_STEP,
    ),
    _row(
        r"ResourceLimitExceeded",
        QuotaExceededError,
        "the account's quota for this instance type is used up",
        "wait for other jobs to end, or request an increase in Service Quotas",
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
        KILLED,
        InfrastructureError,
        "a rank was killed from outside the script",
        _KILLED_STEP,
    ),
    _row(
        r'Process killed by SIGKILL[\s\S]*Command "torchrun',
        InfrastructureError,
        "torchrun itself was killed, probably not for lack of memory: the kernel would have killed a rank instead",
        _RETRY_STEP,
    ),
    _row(
        r"OutOfMemory: Process killed by SIGKILL|exit code:? 137\b|ExitCode:? 137\b",
        InfrastructureError,
        "the container was killed (exit code 137): by its machine, or because the host ran out of memory",
        _KILLED_STEP,
        is_weak=True,
    ),
    _row(
        r"exceeded MaxRuntimeInSeconds|MaxRuntimeExceeded",
        TimeLimitError,
        "the job reached max_run and was stopped",
        "raise max_run, or reduce the job's work",
    ),
    _row(
        r"Watchdog caught collective operation timeout|ProcessGroup\w+ .*timed out"
        r"|DistBackendError|DistNetworkError|DistStoreError|NCCL error|ncclRemoteError|ncclSystemError",
        InfrastructureError,
        "a collective between the ranks failed or hung",
        _RETRY_STEP,
        is_of_peers=True,
    ),
    _row(
        r"An error occurred \((5\d\d|SlowDown|ServiceUnavailable|RequestTimeout|Throttling\w*)\) when calling",
        InfrastructureError,
        "an AWS service failed for longer than the container's client retries",
        "retry: training resumes from the last checkpoint; AWS_RETRY_MODE=standard and a larger AWS_MAX_ATTEMPTS in "
        "the job's environment let its clients wait longer",
    ),
    _row(
        r"download failed: ?Insufficient disk space",
        DataError,
        "the inputs do not fit on the volume of the instances",
        _VOLUME_STEP,
    ),
    _row(
        r"No space left on device|Insufficient disk space|\[Errno 28\]",
        ScriptError,
        "a disk of a host is full",
        f"{_VOLUME_STEP}; keep fewer checkpoints; if the message names /torch_ or /dev/shm, use fewer loader workers",
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
        r"\bDataError: ",
        DataError,
        "the data does not match the job",
        "correct the data or the settings as stated in the reason, then start a new run",
    ),
    _row(
        r"PeerError|Another rank failed|Connection closed by peer|Connection reset by peer"
        r"|Broken pipe|Socket Timeout|recvBytes|recvValue failed|Timed out waiting \d+ ?ms|NCCL WARN.*peer",
        InfrastructureError,
        "a rank lost its peers",
        _RETRY_STEP,
        is_weak=True,
        is_of_peers=True,
    ),
    _row(
        r"ExecuteUserScriptError|Traceback \(most recent call last\)|"
        + RAISED
        + r"|ExitCode:? [1-9]|exit code:? [1-9]|exitcode\s*:\s*([1-9]|-\d)|Framework Error",
        ScriptError,
        "the training script failed",
        _SCRIPT_STEP,
    ),
)
