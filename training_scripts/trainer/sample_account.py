"""Samples consumed since the last metric line: their positions and their digest."""

from __future__ import annotations

from trainer.data.sample_digest import MASK


class SampleAccount:
    """Account of the consumed samples, from the position `start` of the run's sample order."""

    def __init__(self, start: int) -> None:
        self._first = self._end = start
        self._digest = 0

    def add(self, num_samples: int, digest: int) -> None:
        """Count the samples of one step; `digest` is that of the samples that all ranks read."""
        self._end += num_samples
        self._digest = (self._digest + digest) & MASK

    def read(self) -> dict[str, str]:
        """Return the metric values `samples` ("first:end") and `digest` (16 hex digits), and reset the account."""
        values = {"samples": f"{self._first}:{self._end}", "digest": f"{self._digest:016x}"}
        self._first, self._digest = self._end, 0
        return values
