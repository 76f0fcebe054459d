"""Bandwidth of a host's line to S3."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_S = 0.05
"""Seconds for which bytes are delayed before the bandwidth is asked for again."""


def unlimited() -> float | None:
    """Return the bandwidth of a line that nothing limits."""
    return None


def _nothing() -> None:
    """Do nothing while bytes are on their way."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One direction of a host's line to S3: what passes takes as long as its bytes need.

    `bytes_per_s` returns the bandwidth now, None for as much as the machine can; it is asked often, so that a change
    takes effect at once. Not thread-safe.
    """

    bytes_per_s: Callable[[], float | None] = unlimited
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _ahead: float = field(default=0.0, init=False)
    """Bytes that could have passed while a wait lasted longer than asked for."""

    def carry(self, num_bytes: float, *, meanwhile: Callable[[], None] = _nothing) -> None:
        """Block until the bytes have passed. `meanwhile` is called after each wait and may abort by raising."""
        left = num_bytes - self._ahead
        self._ahead = 0.0
        since = self.clock()
        while left > 0:
            speed = self.bytes_per_s()
            if speed is None:
                return
            self.wait(min(left / speed, SLICE_S))
            meanwhile()
            now = self.clock()
            left -= speed * (now - since)
            since = now
        self._ahead = -left
