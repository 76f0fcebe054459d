"""Retry policy of the engine's own S3 requests: the errors that are retried, the pauses, and the time limit."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

T = TypeVar("T")

LIMIT_S = 300.0
"""Seconds for which one request is retried.

AWS documents no limit. This limit is longer than the S3 outages for which AWS advises clients to retry (minutes), and
far below a job's time limit.
"""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
_LOOK_S = 0.2
_RETRIED_CODES = frozenset({"RequestTimeout", "IncompleteBody"})


def is_transient(error: S3Error) -> bool:
    """Return True if a retry may succeed: after a service error, a timeout or a truncated response."""
    return error.status >= 500 or error.code in _RETRIED_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrier:
    """Retries a request for at most `limit_s` seconds, with pauses that double from 0.5 s up to 10 s.

    `scale` multiplies the limit and the pauses. `must_end` is polled during the pauses: after it returns True, no
    further retry is made.
    """

    limit_s: float = LIMIT_S
    scale: float = 1.0
    must_end: Callable[[], bool] = lambda: False
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def ask(self, call: Callable[[], T], *, what: str) -> T:
        """Return the result of `call`, with retries; `what` names the request in the log.

        Raises:
            S3Error: The error is not transient, the time is over, or `must_end` returned True.
        """
        deadline = self.clock() + self.limit_s * self.scale
        pause = FIRST_PAUSE_S * self.scale
        while True:
            try:
                return call()
            except S3Error as error:
                if (
                    not is_transient(error)
                    or self.clock() + pause > deadline
                    or not self.pause(pause)
                ):
                    raise
                log.warning("%s: %s; retrying", what, error)
            pause = min(2 * pause, LONGEST_PAUSE_S * self.scale)

    def pause(self, seconds: float) -> bool:
        """Wait; return True after `seconds`, or False as soon as `must_end` returns True."""
        end = self.clock() + seconds
        while not self.must_end():
            left = end - self.clock()
            if left <= 0:
                return True
            self.wait(min(left, _LOOK_S))
        return False
