"""Pauses between polls of a job."""

from __future__ import annotations

import random
from dataclasses import dataclass

_SHARE_OF_AGE = 0.02
SHORTEST_S = 5.0
_JITTER = 0.2
_LAST_PHASES = frozenset({"Uploading", "Stopping", "MaxRuntimeExceeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Poll intervals that grow with the job's age: 2 % of it, within `shortest_s` and `longest_s`.

    Attributes:
        shortest_s: seconds between polls of a job that just started. A poll makes two or three calls, and all jobs
            share the account's rate limits.
        longest_s: maximum seconds between polls.
        ending_s: maximum seconds between polls once the job is about to end.
    """

    shortest_s: float = SHORTEST_S
    longest_s: float = 15.0
    ending_s: float = 1.0

    def delay_s(self, *, age_s: float, phase: str | None) -> float:
        """Return the seconds until the next poll.

        Worked example: a job that is 400 s old and in `Training` is polled after 8 s.

        Args:
            age_s: seconds since the job was created.
            phase: the job's secondary status, or None.
        """
        delay = min(self.longest_s, max(self.shortest_s, age_s * _SHARE_OF_AGE))
        return min(delay, self.ending_s) if phase in _LAST_PHASES else delay


def backoff_s(failures: int, *, longest_s: float = 30.0) -> float:
    """Return the seconds to wait after `failures` consecutive failed polls.

    The pause is 1 s after the first failure and doubles with each further one, up to `longest_s`.
    """
    return float(min(longest_s, 2.0 ** min(failures - 1, 16)))


def trigger_pause_s(failures: int) -> float:
    """Return the seconds until a task defers again after `failures` consecutive failures of its trigger.

    The pause is 10, 20, 40, ... 300 s, with a jitter of 20 %. A release with a broken trigger fails all triggers at
    once; during the pause their tasks occupy no worker slot.
    """
    return jittered(10.0 * backoff_s(failures, longest_s=30.0))


def jittered(delay_s: float) -> float:
    """Return a random delay of 80 to 120 % of `delay_s`, so that the polls of jobs that start together spread out."""
    return delay_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # no secret
