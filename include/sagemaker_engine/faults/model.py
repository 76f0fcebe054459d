"""Faults as values: the effect, the target, the moment and the number of times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class FaultError(ValueError):
    """An invalid fault; the message states the field, its value and the allowed values."""


class FaultKind(StrEnum):
    """Kinds of faults; the member `what` in JSON."""

    INTERRUPT = "interrupt"
    """Spot capacity is reclaimed: the hosts are lost, and the job waits for new ones. Spot jobs only."""
    KILL_RANK = "kill_rank"
    """One training process of a host is killed by SIGKILL."""
    HANG = "hang"
    """All processes of a host are suspended (SIGSTOP), without end or for `duration_s`."""
    SLOW = "slow"
    """The processes of a host run only for the share `factor` of the time."""
    CUT_LINK = "cut_link"
    """The network between the hosts drops all packets, without end or for `duration_s`."""
    DISK_FULL = "disk_full"
    """Writes into the checkpoint folder of a host fail with ENOSPC, without end or for `duration_s`."""
    HOST_FAILURE = "host_failure"
    """The service loses a host: InternalServerError, which RetryStrategy retries."""
    NO_CAPACITY = "no_capacity"
    """A request for instances waits, without end or for `duration_s`."""
    CAPACITY_ERROR = "capacity_error"
    """A request for instances fails; the job fails with CapacityError."""
    S3_ERROR = "s3_error"
    """An S3 request fails with `status` and `code`."""
    S3_STALL = "s3_stall"
    """The response to an S3 request is delayed by `duration_s`."""
    S3_TRUNCATE = "s3_truncate"
    """GetObject sends half of the object, then the connection is closed."""
    SLOW_UPLINK = "slow_uplink"
    """Uploads of checkpoints, models and Debugger's outputs are limited to `megabytes_per_s` per host."""
    SLOW_DOWNLINK = "slow_downlink"
    """Downloads of channels and checkpoints are limited to `megabytes_per_s` per host."""
    THROTTLE = "throttle"
    """An operation (of SageMaker, if `operation` is None) fails with a throttling error or with `code`."""
    RESOURCE_LIMIT = "resource_limit"
    """CreateTrainingJob and CreateProcessingJob, or `operation`, fail with ResourceLimitExceeded."""

    @property
    def is_of_compute(self) -> bool:
        """Return whether the fault hits a job's instances or the request for them, not transfers or API calls."""
        return self in COMPUTE_KINDS


CAPACITY_KINDS = frozenset({FaultKind.NO_CAPACITY, FaultKind.CAPACITY_ERROR})
COMPUTE_KINDS = CAPACITY_KINDS | {
    *(FaultKind.INTERRUPT, FaultKind.KILL_RANK, FaultKind.HANG, FaultKind.SLOW),
    *(FaultKind.CUT_LINK, FaultKind.DISK_FULL, FaultKind.HOST_FAILURE),
}
LINE_KINDS = frozenset({FaultKind.SLOW_UPLINK, FaultKind.SLOW_DOWNLINK})
"""Kinds that limit transfers of hosts for a period of time, rather than at a moment."""
WINDOWED_KINDS = LINE_KINDS | {
    *(FaultKind.S3_ERROR, FaultKind.S3_TRUNCATE, FaultKind.THROTTLE, FaultKind.RESOURCE_LIMIT),
}
"""Kinds that affect requests or transfers in a window, which begins `at.seconds` after the fault was stored and lasts
`duration_s`, or until the fault is removed.
"""


LOSS_KINDS = frozenset({FaultKind.INTERRUPT, FaultKind.HOST_FAILURE})
"""Kinds that remove hosts; each ends the job's attempt."""


class JobState(StrEnum):
    """Phase of a job in which a fault occurs. CHECKPOINTING: a file in its checkpoint folder is being written."""

    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    CHECKPOINTING = "Checkpointing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Moment at which a fault occurs; exactly one of three fields is set.

    - `step`: when the attempt's log has shown this step or a later one, as `step=N` or as XGBoost's round `[N]`.
    - `seconds`: seconds after the attempt's Training status began. For faults of service requests: seconds
      after the fault was stored.
    - `state`: when the attempt enters this phase.
    """

    step: int | None = None
    seconds: float | None = None
    state: JobState | None = None

    def __post_init__(self) -> None:
        """Check that exactly one field is set and is not negative.

        Raises:
            FaultError: No field or several fields are set, or a number is below 0.
        """
        given = self.as_json()
        if len(given) != 1:
            got = " and ".join(given) or "nothing"
            raise FaultError(
                f"field `at` of a fault: got {got}; give exactly one of step, seconds, state"
            )
        if (self.step or 0) < 0 or (self.seconds or 0) < 0:
            raise FaultError(
                f"field `at` of a fault: got {given}; step and seconds must be at least 0"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the moment as JSON that `reader` accepts."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    - `job`: glob over job names.
    - `attempt`: number of the attempt, counted from 1; None for all attempts. Each start of the job's instances
      is an attempt.
    - `at`: moment at which the fault occurs; None for the earliest one. The earliest moment is the start of
      Training or, for faults of service requests, the next request.
    - `hosts`: names such as algo-1; None for all.
    - `notice_s`: seconds between SIGTERM and the loss of the hosts.
    - `duration_s`: seconds for which the effect lasts (see `FaultKind`); None for no end.
    - `count`: number of times that the fault occurs in total; None for no limit. A compute fault occurs at most
      once per attempt of a job.
    - `factor`: share of the time for which a slowed host runs.
    - `megabytes_per_s`: bandwidth of one host in 10^6 bytes per second.
    - `operation`, `bucket`, `key_prefix`: filters of service requests.
    - `status`, `code`: HTTP status and error code of a failed request.
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
        """Check the values that can be checked within one fault.

        Raises:
            FaultError: A number is out of range, or a field is missing or not supported by the kind.
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
        is_of_requests = not self.what.is_of_compute and self.what not in LINE_KINDS
        usual = {"job": "*", "attempt": None, "hosts": None}
        odd = [name for name, value in usual.items() if getattr(self, name) != value]
        if is_of_requests and odd:
            raise FaultError(
                f"fault {self.id}: {self.what} applies to the requests of all clients; remove `{'`, `'.join(odd)}`"
            )
        if self.at is not None and self.what in CAPACITY_KINDS:
            raise FaultError(
                f"fault {self.id}: {self.what} occurs when a job requests instances, so give `attempt` instead of `at`"
            )
        if self.at is not None and self.at.seconds is None and not self.what.is_of_compute:
            raise FaultError(
                f"fault {self.id}: {self.what} supports only `seconds` in `at`; got {self.at.as_json()}"
            )

    def hits_job(self, name: str, attempt: int) -> bool:
        """Return whether the fault applies to this attempt of this job."""
        return fnmatchcase(name, self.job) and self.attempt in {None, attempt}

    def hits_host(self, name: str) -> bool:
        """Return whether the fault applies to this host."""
        return self.hosts is None or name in self.hosts

    def as_json(self) -> dict[str, Any]:
        """Return the fault as JSON that `reader` accepts, without absent values."""
        values: dict[str, Any] = {
            **asdict(self),
            "at": None if self.at is None else self.at.as_json(),
            "hosts": "all" if self.hosts is None else list(self.hosts),
        }
        return {key: value for key, value in values.items() if value is not None or key == "count"}
