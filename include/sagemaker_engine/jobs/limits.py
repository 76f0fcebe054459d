"""Limits on a job's time and retries over all its attempts, and the counts of its attempts and retries."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs.life_cycle import BETWEEN_INSTANCES, seconds_in
from sagemaker_engine.jobs.supervision import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_MAX_RUNTIME_S = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one job in seconds; `created_at` is in epoch seconds.

    StoppingCondition applies to all attempts together: MaxRuntimeInSeconds to the time in Training,
    MaxWaitTimeInSeconds (spot jobs only) to the time since the job was created.
    """

    max_runtime_s: float
    max_wait_s: float | None
    created_at: float
    clock: Callable[[], float] = time.time

    @classmethod
    def of(cls, request: dict[str, Any], *, created_at: float) -> Limits:
        """Return the limits of a Create request."""
        condition = request.get("StoppingCondition", {})
        return cls(
            max_runtime_s=float(condition.get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_S)),
            max_wait_s=condition.get("MaxWaitTimeInSeconds"),
            created_at=created_at,
        )

    def runtime_left_s(self, transitions: Sequence[dict[str, Any]]) -> float:
        """Return the remaining training time in seconds."""
        return self.max_runtime_s - seconds_in("Training", transitions)

    def has_waited_too_long(self) -> Ending | None:
        """Return MAX_WAIT_TIME_EXCEEDED if the wait time is used up, otherwise None."""
        if self.max_wait_s is not None and self.clock() - self.created_at >= self.max_wait_s:
            return Ending.MAX_WAIT_TIME_EXCEEDED
        return None


def num_attempts(transitions: Sequence[dict[str, Any]]) -> int:
    """Return the number of starts of the job, including the current one."""
    return max(1, _num_starts(transitions))


def next_attempt(transitions: Sequence[dict[str, Any]]) -> int:
    """Return the number of the attempt that is about to begin; the first attempt has number 1.

    Each attempt adds one Starting transition. Normally the coming attempt has added its transition already, so
    the number is the count of these transitions. While the job waits for new instances, the coming attempt has
    not added its transition yet, so the number is the count plus 1.
    """
    waits = transitions[-1]["Status"] in BETWEEN_INSTANCES
    return _num_starts(transitions) + 1 if waits else num_attempts(transitions)


def _num_starts(transitions: Sequence[dict[str, Any]]) -> int:
    return Counter(each["Status"] for each in transitions)["Starting"]


def num_retries(transitions: Sequence[dict[str, Any]]) -> int:
    """Return the number of starts that were retries by RetryStrategy, and not replacements after an interruption."""
    statuses = [each["Status"] for each in transitions]
    return sum(
        now == "Starting" and before not in BETWEEN_INSTANCES for before, now in pairwise(statuses)
    )


def may_retry(request: dict[str, Any], transitions: Sequence[dict[str, Any]]) -> bool:
    """Return whether RetryStrategy allows another start after an InternalServerError."""
    allowed: int = request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)
    return num_retries(transitions) < allowed
