"""Throughput of the training: time inside steps, time waiting for data, time until the end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Meter:
    """Counts steps and their seconds, and those of the parts of the step that is being taken.

    Evaluation and checkpoints lie outside steps; only the estimate of the end includes them. On a GPU the parts are
    the seconds until the host went on: the wait for the device lies where its results are read.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._total_steps = 0
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        self._step_began = 0.0
        self._parts: dict[str, float] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one optimizer step."""
        began = self._step_began = time.monotonic()
        self._parts = {}
        yield
        self._seconds += time.monotonic() - began
        self._steps += 1
        self._total_steps += 1

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of a step, such as `forward`; what has the same name adds up."""
        began = time.monotonic()
        yield
        key = f"{name}_seconds"
        self._parts[key] = self._parts.get(key, 0.0) + time.monotonic() - began

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time a wait for the loader, inside a step."""
        began = time.monotonic()
        with self.part("data_wait"):
            yield
        self._data_wait_seconds += time.monotonic() - began

    def end_local_part(self) -> None:
        """Note that the step's first collective comes now: until here no other rank could slow it down."""
        self._parts.setdefault("local_seconds", time.monotonic() - self._step_began)

    def of_step(self) -> dict[str, float]:
        """Return the seconds of the step that is being taken, and of its parts, until now."""
        return {"step_seconds": time.monotonic() - self._step_began, **self._parts}

    def read(self) -> tuple[int, float, float]:
        """Return steps, their seconds and of these the wait for data, since the last reading."""
        reading = self._steps, self._seconds, self._data_wait_seconds
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        return reading

    def seconds_per_step(self) -> float:
        """Return the mean wall seconds of a step so far, evaluation and checkpoints included."""
        return (time.monotonic() - self._began) / max(1, self._total_steps)
