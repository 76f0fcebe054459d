"""Samples consumed since the last metric line: their positions and their digest."""

from __future__ import annotations

from trainer.data.sample_digest import MASK


class SampleAccount:
    """Adds up what the steps consumed, from the position where this start of the run began."""

    def __init__(self, start: int) -> None:
        self._first = self._end = start
        self._digest = 0

    def add(self, num_samples: int, digest: int) -> None:
        """Count the samples of one step, by the digest of what all ranks really read."""
        self._end += num_samples
        self._digest = (self._digest + digest) & MASK

    def read(self) -> dict[str, str]:
        """Return the values of a metric line, and begin to count again."""
        values = {"samples": f"{self._first}:{self._end}", "digest": f"{self._digest:016x}"}
        self._first, self._digest = self._end, 0
        return values
