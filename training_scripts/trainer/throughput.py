"""How fast training goes: time inside steps, time waiting for data, time until the end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Meter:
    """Counts steps and their seconds.

    Evaluation and checkpoints lie outside steps; only the estimate of the end includes them.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._total_steps = 0
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        self._step_began = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one optimizer step."""
        began = time.monotonic()
        yield
        self._seconds += time.monotonic() - began
        self._steps += 1
        self._total_steps += 1

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time a wait for the loader, inside a step."""
        began = time.monotonic()
        yield
        self._data_wait_seconds += time.monotonic() - began

    def read(self) -> tuple[int, float, float]:
        """Return steps, their seconds and of these the wait for data, since the last reading."""
        reading = self._steps, self._seconds, self._data_wait_seconds
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        return reading

    def seconds_per_step(self) -> float:
        """Return the mean wall seconds of a step so far, evaluation and checkpoints included."""
        return (time.monotonic() - self._began) / max(1, self._total_steps)
