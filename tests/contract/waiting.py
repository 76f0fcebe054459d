"""Waiting for what an endpoint will say, with a limit."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitClock:
    """How often to ask and when to give up, in seconds."""

    poll_s: float
    limit_s: float


def wait_until(
    ask: Callable[[], T], is_so: Callable[[T], bool], *, clock: WaitClock, what: str
) -> T:
    """Return the first answer for which `is_so` holds.

    Raises:
        TimeoutError: It did not hold within the limit.
    """
    deadline = time.monotonic() + clock.limit_s
    pause = threading.Event()
    while True:
        answer = ask()
        if is_so(answer):
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {clock.limit_s} s; the last answer: {answer}")
        pause.wait(clock.poll_s)
