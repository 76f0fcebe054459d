"""Checkpoint pace: checkpoints at a fixed interval, or at one chosen from their measured cost.

Only rank 0 decides; the other ranks receive its decision with the sum of the losses.
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
    """Schedule of a run's checkpoints."""

    def is_due(self, step: int, *, is_writing: bool) -> bool:
        """Return whether a checkpoint follows `step`; called once per step.

        `is_writing` is whether the previous checkpoint is still being written.
        """

    def note_cost(self, cost_s: float) -> IntervalChoice | None:
        """Record the seconds that the last checkpoint cost training; return the new interval, if one was chosen."""

    def note_past(self, *, interruptions: int, trained_s: float) -> None:
        """Record the run's interruptions and training seconds before this start."""


def make_pace(interval: int, mean_time_to_interruption_s: float) -> Pace:
    """Return the pace of the hyperparameter `checkpoint_interval`."""
    if interval == CHOSEN:
        return ChosenPace(mean_time_to_interruption_s=mean_time_to_interruption_s)
    return FixedPace(interval)


class FixedPace:
    """A checkpoint at each multiple of `interval` steps, even if training must wait for the previous; -1: none."""

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
    """The interval with the least cost, chosen anew after each checkpoint.

    - The first checkpoint of a start follows its tenth step, since the cost must be measured first.
    - Only one checkpoint is written at a time. If one is due during a write, it waits for the end of that write.
    - The expected rate of interruptions is the given rate, or the run's observed rate if that is higher.
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
        )  # both (step, time): of the last checkpoint, and of the last step
        self._first: tuple[int, float] | None = None
        self._interruptions, self._trained_s = 0, 0.0
        self._costs_s: list[float] = []

    def is_due(self, step: int, *, is_writing: bool) -> bool:
        """Return whether the interval is over and no checkpoint is being written."""
        self._now = (step, self._clock())
        if self._first is None:  # a start's first step includes the warm-up, so it is not timed
            self._first, self._last = self._now, (step - 1, self._now[1])
        is_due = not is_writing and step - self._last[0] >= self._interval
        if is_due:
            self._last = self._now
        return is_due

    def note_cost(self, cost_s: float) -> IntervalChoice | None:
        """Choose the interval from the highest cost of the last three checkpoints and the mean step time.

        Return None if the start has not taken two steps yet.
        """
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
        """Record the run's interruptions and training seconds before this start."""
        self._interruptions, self._trained_s = interruptions, trained_s

    def _expected_s(self, trained_s: float) -> float:
        """Return the expected seconds to the next interruption after `trained_s` seconds of training.

        One interruption is no rate yet, and neither is a checkpoint without seconds, of an earlier version.
        Worked: 3600 s are given, the run was interrupted 3 times in 120 s: 40 s.
        """
        is_known = self._interruptions > 1 and self._trained_s > 0
        seen_s = trained_s / self._interruptions if is_known else math.inf
        return min(self._mean_time_to_interruption_s, seen_s)
