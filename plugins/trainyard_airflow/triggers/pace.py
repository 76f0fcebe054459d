"""Pauses between looks at a job. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

_SHARE_OF_AGE = 0.02
SHORTEST_S = 5.0
_JITTER = 0.2
_LAST_PHASES = frozenset({"Uploading", "Stopping", "MaxRuntimeExceeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Looks often at a young job and seldom at an old one, so that waiting adds at most 2 % to any job.

    Attributes:
        shortest_s: seconds between looks at a job that just started. A look is two or three calls, and the account's
            limits hold for all jobs together.
        longest_s: seconds between looks at a job that runs for long.
        ending_s: at most this many seconds between looks once the job is about to end.
    """

    shortest_s: float = SHORTEST_S
    longest_s: float = 15.0
    ending_s: float = 1.0

    def delay_s(self, *, age_s: float, phase: str | None) -> float:
        """Return the seconds until the next look.

        Worked number: a job of 400 s in `Training` is looked at every 8 s.

        Args:
            age_s: seconds since the job was created.
            phase: its secondary status, None where it has none.
        """
        delay = min(self.longest_s, max(self.shortest_s, age_s * _SHARE_OF_AGE))
        return min(delay, self.ending_s) if phase in _LAST_PHASES else delay


def backoff_s(failures: int, *, longest_s: float = 30.0) -> float:
    """Return the seconds to wait after `failures` looks in a row that got no answer: 1, 2, 4, ... `longest_s`."""
    return float(min(longest_s, 2.0 ** min(failures - 1, 16)))


def trigger_pause_s(failures: int) -> float:
    """Return the seconds until a task whose trigger failed so often in a row defers again: 10, 20, ... 300, jittered.

    A release with a broken trigger fails all of them at once: none of their tasks takes a worker's slot meanwhile.
    """
    return jittered(10.0 * backoff_s(failures, longest_s=30.0))


def jittered(delay_s: float) -> float:
    """Return a delay of 80 to 120 % of the given one, so that jobs that start together are not asked for together."""
    return delay_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # no secret
