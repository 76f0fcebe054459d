"""When a checkpoint is due: every so many steps, or as often as its measured cost is worth.

Only rank 0 asks; what it says reaches the other ranks with the sum of the losses.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

from trainer.checkpoint_interval import IntervalChoice, choose_interval

if TYPE_CHECKING:
    from collections.abc import Callable

ONLY_AT_THE_END, CHOSEN = -1, 0
FIRST_AFTER_STEPS = 10


class Pace(Protocol):
    """Says when a checkpoint is due."""

    def is_due(self, step: int, *, is_writing: bool) -> bool:
        """Return whether one is taken after `step`; asked once a step. `is_writing`: one still is."""

    def note_cost(self, cost_s: float) -> IntervalChoice | None:
        """Learn what the last one cost training; return the interval if that has chosen one."""

    def note_past(self, *, interruptions: int, trained_s: float) -> None:
        """Learn how often the run was interrupted before this start, in so many seconds of training."""


def make_pace(interval: int, mean_time_to_interruption_s: float) -> Pace:
    """Return the pace of the hyperparameter `checkpoint_interval`."""
    if interval == CHOSEN:
        return ChosenPace(mean_time_to_interruption_s=mean_time_to_interruption_s)
    return FixedPace(interval)


class FixedPace:
    """Each multiple of `interval` steps, even when training must wait for the one before; -1: none."""

    def __init__(self, interval: int) -> None:
        self._interval = interval

    def is_due(self, step: int, *, is_writing: bool) -> bool:  # noqa: ARG002 exactly as asked for
        """Return whether the step is a multiple of the interval."""
        return self._interval > 0 and step % self._interval == 0

    def note_cost(self, cost_s: float) -> None:
        """Return None: the interval stays."""

    def note_past(self, *, interruptions: int, trained_s: float) -> None:
        """Do nothing: the interval stays."""


class ChosenPace:
    """The interval that costs least, chosen anew after each checkpoint; never two at a time.

    The first comes after a few steps of a start, because a cost must be measured before it can be
    weighed. One that is due while another is being written is taken as soon as that is durable.
    Interruptions are expected at the given rate, or at the rate that the run has seen if that is higher.
    """

    def __init__(
        self, *, mean_time_to_interruption_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mean_time_to_interruption_s = mean_time_to_interruption_s
        self._clock = clock
        self._interval = FIRST_AFTER_STEPS
        self._last = self._now = (
            0,
            0.0,
        )  # (step, time) of the last checkpoint, and of the last step
        self._first: tuple[int, float] | None = None
        self._interruptions, self._trained_s = 0, 0.0
        self._costs_s: list[float] = []

    def is_due(self, step: int, *, is_writing: bool) -> bool:
        """Return whether the interval is over and nothing is being written."""
        self._now = (step, self._clock())
        if self._first is None:  # a start's first step also warms up: its time is not a step's
            self._first, self._last = self._now, (step - 1, self._now[1])
        is_due = not is_writing and step - self._last[0] >= self._interval
        if is_due:
            self._last = self._now
        return is_due

    def note_cost(self, cost_s: float) -> IntervalChoice | None:
        """Choose the interval by the dearest of the last three checkpoints and the mean step."""
        self._costs_s = [*self._costs_s[-2:], cost_s]
        if self._first is None or self._now[0] == self._first[0]:
            return None
        num_steps, seconds = (
            now - first for now, first in zip(self._now, self._first, strict=True)
        )
        choice = choose_interval(
            cost_s=max(self._costs_s),
            step_s=seconds / num_steps,
            mean_time_to_interruption_s=self._expected_s(self._trained_s + seconds),
        )
        self._interval = choice.steps
        return choice

    def note_past(self, *, interruptions: int, trained_s: float) -> None:
        """Learn how often the run was interrupted before this start, in so many seconds of training."""
        self._interruptions, self._trained_s = interruptions, trained_s

    def _expected_s(self, trained_s: float) -> float:
        """Return the expected seconds to the next interruption after `trained_s` seconds of training.

        One interruption is no rate yet, and neither is a checkpoint without seconds, of an earlier version.
        Worked: 3600 s are given, the run was interrupted 3 times in 120 s: 40 s.
        """
        is_known = self._interruptions > 1 and self._trained_s > 0
        seen_s = trained_s / self._interruptions if is_known else math.inf
        return min(self._mean_time_to_interruption_s, seen_s)
