"""Retry policy of the platform's S3 requests: total time and pauses."""

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
"""Seconds for which the request of one object is repeated. The service documents no limit; this one is longer than the
S3 events for which AWS advises its clients to retry (minutes), and far below a job's time limit."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
_LOOK_S = 0.2
_RETRIED_CODES = frozenset({"RequestTimeout", "IncompleteBody"})


def is_transient(error: S3Error) -> bool:
    """Return whether asking again may help: a fault of the service, a lost connection, half an answer."""
    return error.status >= 500 or error.code in _RETRIED_CODES


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrier:
    """Asks again, after pauses that double, for at most `limit_s` seconds.

    `scale` multiplies the limit and the pauses. `must_end` is looked at while waiting: once it is true, the next
    failure is the last.
    """

    limit_s: float = LIMIT_S
    scale: float = 1.0
    must_end: Callable[[], bool] = _never
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def ask(self, call: Callable[[], T], *, what: str) -> T:
        """Return what the call returns, once it does.

        Raises:
            S3Error: It is refused for good, or the time is over.
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
                log.warning("%s: %s; asking again", what, error)
            pause = min(2 * pause, LONGEST_PAUSE_S * self.scale)

    def pause(self, seconds: float) -> bool:
        """Wait; return False, early, when there is no more time for waiting."""
        end = self.clock() + seconds
        while not self.must_end():
            left = end - self.clock()
            if left <= 0:
                return True
            self.wait(min(left, _LOOK_S))
        return False
