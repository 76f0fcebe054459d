"""Random spot interruptions from a seed: the same seed interrupts each job at the same moments in every run."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any

from sagemaker_engine.faults.model import Fault, FaultError, FaultKind, Moment

SCHEDULED_ID = "seed-{seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Interruptions of all spot jobs as a Poisson process.

    `max_interruptions` limits the number of interrupted attempts per job; None means no limit.
    """

    seed: int
    interruptions_per_hour: float
    notice_s: float = 0.0
    max_interruptions: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            FaultError: A number is out of range.
        """
        if not 0 < self.interruptions_per_hour <= 36000:
            raise FaultError(
                f"schedule: interruptions_per_hour is {self.interruptions_per_hour}; allowed: more than 0, up to 36000"
            )
        if not 0 <= self.notice_s <= 86400:
            raise FaultError(f"schedule: notice_s is {self.notice_s}; allowed: 0 to 86400")
        if self.max_interruptions is not None and self.max_interruptions < 0:
            raise FaultError(
                f"schedule: max_interruptions is {self.max_interruptions}; allowed: 0 or more"
            )

    def interruption(self, job: str, attempt: int) -> Fault | None:
        """Return the interruption of one attempt of a spot job, or None after the first `max_interruptions` attempts.

        It occurs `seconds_until_interruption` after the attempt's training began. An attempt that ends earlier
        is not interrupted.
        """
        if self.max_interruptions is not None and attempt > self.max_interruptions:
            return None
        seconds = seconds_until_interruption(
            seed=self.seed, job=job, attempt=attempt, per_hour=self.interruptions_per_hour
        )
        return Fault(
            id=SCHEDULED_ID.format(seed=self.seed),
            what=FaultKind.INTERRUPT,
            job=job,
            attempt=attempt,
            at=Moment(seconds=round(seconds, 3)),
            notice_s=self.notice_s,
            count=None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the schedule as JSON in the form that the module `faults.reader` reads."""
        return asdict(self)


def seconds_until_interruption(*, seed: int, job: str, attempt: int, per_hour: float) -> float:
    """Return the seconds of training after which the attempt is interrupted: exponential, mean 3600 / per_hour.

    Drawn by inversion, -ln(1 - u) x mean, with u from the SHA-256 of seed, job and attempt only.
    Example: u = 0.5 and 30 per hour give ln 2 x 120 s = 83.18 s.
    """
    digest = hashlib.sha256(f"{seed}\n{job}\n{attempt}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    return exponential(uniform, mean=3600 / per_hour)


def exponential(uniform: float, *, mean: float) -> float:
    """Return the quantile of the exponential distribution with this mean at the probability `uniform`.

    `uniform` is at least 0 and below 1.
    """
    return -math.log1p(-uniform) * mean
