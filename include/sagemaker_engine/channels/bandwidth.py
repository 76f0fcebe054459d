"""Simulated bandwidth between a host and S3."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_S = 0.05
"""Longest wait in seconds before the current bandwidth is read again."""


def unlimited() -> float | None:
    """Return None: the bandwidth is not limited."""
    return None


def _nothing() -> None:
    """Do nothing during a transfer."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One direction between a host and S3, which delays transfers according to its bandwidth.

    `bytes_per_s` returns the current bandwidth, or None for no limit. It is called at least every `SLICE_S` seconds
    during a transfer, so that a change takes effect at once. Not thread-safe.
    """

    bytes_per_s: Callable[[], float | None] = unlimited
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _ahead: float = field(default=0.0, init=False)
    """Bytes to credit to the next transfer, because the last wait took longer than requested."""

    def carry(self, num_bytes: float, *, meanwhile: Callable[[], None] = _nothing) -> None:
        """Block for the time that the transfer of the bytes takes.

        The time is divided into waits of at most `SLICE_S` seconds. `meanwhile` is called after each wait, and may
        abort the transfer by raising.
        """
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
