"""A fault as a value: what goes wrong, whom it hits, when and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class FaultError(ValueError):
    """A fault that cannot be; the message states where, what was got and what is allowed."""


class FaultKind(StrEnum):
    """Kinds of faults; `what` in JSON."""

    INTERRUPT = "interrupt"
    """Spot capacity is reclaimed: the hosts vanish, the job waits for new ones. Spot jobs only."""
    KILL_RANK = "kill_rank"
    """One training process of a host is killed by SIGKILL."""
    HANG = "hang"
    """All processes of a host stand still (SIGSTOP), for ever or for `duration_s`."""
    SLOW = "slow"
    """The processes of a host run only `factor` of the time."""
    CUT_LINK = "cut_link"
    """The network between the hosts drops every packet, for ever or for `duration_s`."""
    DISK_FULL = "disk_full"
    """The checkpoint folder of a host takes nothing more (ENOSPC), for ever or for `duration_s`."""
    HOST_FAILURE = "host_failure"
    """The service loses a host by its own fault: InternalServerError, what RetryStrategy is for."""
    NO_CAPACITY = "no_capacity"
    """A request for instances waits, for ever or for `duration_s`."""
    CAPACITY_ERROR = "capacity_error"
    """A request for instances fails the job with CapacityError."""
    S3_ERROR = "s3_error"
    S3_STALL = "s3_stall"
    """A request of S3 is answered only after `duration_s`."""
    S3_TRUNCATE = "s3_truncate"
    """Half an object is sent, then the connection is closed."""
    SLOW_UPLINK = "slow_uplink"
    """Uploads of hosts, checkpoints and models, pass at `megabytes_per_s` a host."""
    SLOW_DOWNLINK = "slow_downlink"
    """Downloads of hosts, channels and checkpoints, pass at `megabytes_per_s` a host."""
    THROTTLE = "throttle"
    """An operation of SageMaker answers ThrottlingException."""
    RESOURCE_LIMIT = "resource_limit"
    """CreateTrainingJob answers ResourceLimitExceeded."""

    @property
    def is_of_compute(self) -> bool:
        """Return whether it hits a job's instances, not a request to a service."""
        return self in COMPUTE_KINDS

    @property
    def is_of_s3(self) -> bool:
        """Return whether it hits requests to S3."""
        return self in {FaultKind.S3_ERROR, FaultKind.S3_STALL, FaultKind.S3_TRUNCATE}


CAPACITY_KINDS = frozenset({FaultKind.NO_CAPACITY, FaultKind.CAPACITY_ERROR})
COMPUTE_KINDS = CAPACITY_KINDS | {
    *(FaultKind.INTERRUPT, FaultKind.KILL_RANK, FaultKind.HANG, FaultKind.SLOW),
    *(FaultKind.CUT_LINK, FaultKind.DISK_FULL, FaultKind.HOST_FAILURE),
}
LINE_KINDS = frozenset({FaultKind.SLOW_UPLINK, FaultKind.SLOW_DOWNLINK})
"""Kinds that hold, rather than come, for hosts that transfer something."""
WINDOWED_KINDS = LINE_KINDS | {
    *(FaultKind.S3_ERROR, FaultKind.S3_TRUNCATE, FaultKind.THROTTLE, FaultKind.RESOURCE_LIMIT),
}
"""Kinds whose `duration_s` says how long requests are hit, from `at.seconds` after the fault was put."""


LOSS_KINDS = frozenset({FaultKind.INTERRUPT, FaultKind.HOST_FAILURE})
"""Kinds that take hosts away; one of them ends the attempt."""


class JobState(StrEnum):
    """Phase of a job when a fault occurs; CHECKPOINTING: its checkpoint folder is written to."""

    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    CHECKPOINTING = "Checkpointing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a fault comes: exactly one of the three.

    `step`: once the log of the attempt showed `step=N` with N at least this. `seconds`: since the attempt's Training
    began; since the fault was put, for a service's requests. `state`: when the attempt enters it.
    """

    step: int | None = None
    seconds: float | None = None
    state: JobState | None = None

    def __post_init__(self) -> None:
        """Check that it is one moment.

        Raises:
            FaultError: None or several are given, or one is below 0.
        """
        given = {key: value for key, value in self.as_json().items() if value is not None}
        if len(given) != 1:
            got = " and ".join(given) or "nothing"
            raise FaultError(f"at: got {got}; give exactly one of step, seconds, state")
        if (self.step or 0) < 0 or (self.seconds or 0) < 0:
            raise FaultError(f"at: got {given}; step and seconds must be at least 0")

    def as_json(self) -> dict[str, Any]:
        """Return the moment as the reader takes it."""
        values = {"step": self.step, "seconds": self.seconds, "state": self.state}
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    `job` is a glob over job names, `attempt` which start of the instances inside a job (1 the first; None every one).
    `at` None means at once: with Training for what hits instances, with the request for the rest. `hosts` None means
    all. `notice_s` is the time between SIGTERM and the end of the hosts. `count` is how often the fault comes in all
    (None: without end); inside one attempt of a job a compute fault comes once. `megabytes_per_s` is the bandwidth of
    one host's line, in 10^6 bytes a second.
    """

    id: str
    what: FaultKind
    job: str = "*"
    attempt: int | None = None
    at: Moment | None = None
    hosts: tuple[str, ...] | None = None
    notice_s: float = 0.0
    duration_s: float | None = None
    count: int | None = 1
    factor: float = 0.1
    megabytes_per_s: float | None = None
    operation: str | None = None
    bucket: str | None = None
    key_prefix: str = ""
    status: int = 500
    code: str | None = None

    def __post_init__(self) -> None:
        """Check what one fault can know.

        Raises:
            FaultError: A number is outside what it may be, or the kind lacks what it needs.
        """
        limits: tuple[tuple[str, float | None, float, float], ...] = (
            ("attempt", self.attempt, 1, 1e9),
            ("notice_s", self.notice_s, 0, 86400),
            ("duration_s", self.duration_s, 0, 1e9),
            ("count", self.count, 1, 1e9),
            ("factor", self.factor, 0.001, 0.999),
            ("megabytes_per_s", self.megabytes_per_s, 0.001, 1e6),
            ("status", self.status, 400, 599),
        )
        for name, value, low, high in limits:
            if value is not None and not low <= value <= high:
                raise FaultError(
                    f"fault {self.id}: {name} is {value}; allowed: {low} to {high:.10g}"
                )
        if self.what is FaultKind.S3_STALL and self.duration_s is None:
            raise FaultError(
                f"fault {self.id}: s3_stall needs duration_s, the seconds of each stall"
            )
        if self.what in LINE_KINDS and self.megabytes_per_s is None:
            raise FaultError(
                f"fault {self.id}: {self.what} needs megabytes_per_s, the bandwidth of a host, such as 50"
            )
        if self.hosts is not None and not self.hosts:
            raise FaultError(f'fault {self.id}: hosts is empty; give "all" or names such as algo-1')
        if self.at is not None and self.what in CAPACITY_KINDS:
            raise FaultError(
                f"fault {self.id}: {self.what} comes with a request for instances; give attempt, not at"
            )
        if self.at is not None and self.at.seconds is None and not self.what.is_of_compute:
            raise FaultError(
                f"fault {self.id}: {self.what} comes at seconds only, not at {self.at.as_json()}"
            )

    def hits_job(self, name: str, attempt: int) -> bool:
        """Return whether it is meant for this start of the instances of a job."""
        return fnmatchcase(name, self.job) and self.attempt in {None, attempt}

    def hits_host(self, name: str) -> bool:
        """Return whether it is meant for this host."""
        return self.hosts is None or name in self.hosts

    def as_json(self) -> dict[str, Any]:
        """Return the fault as the reader takes it, without what says nothing."""
        values: dict[str, Any] = {
            "id": self.id,
            "what": self.what.value,
            "job": self.job,
            "attempt": self.attempt,
            "at": None if self.at is None else self.at.as_json(),
            "hosts": "all" if self.hosts is None else list(self.hosts),
            "notice_s": self.notice_s,
            "duration_s": self.duration_s,
            "count": self.count,
            "factor": self.factor,
            "megabytes_per_s": self.megabytes_per_s,
            "operation": self.operation,
            "bucket": self.bucket,
            "key_prefix": self.key_prefix,
            "status": self.status,
            "code": self.code,
        }
        return {key: value for key, value in values.items() if value is not None or key == "count"}
