"""Checkpoint pace: the interval between checkpoints is fixed, or chosen from a checkpoint's measured cost.

Only rank 0 decides; the other ranks receive its decision with the sum of the losses.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHOSEN = 0
FIRST_AFTER_STEPS = 10
MAX_COST_SHARE = 0.01
MAX_STRETCH = 2.0


def make_pace(interval: int, mean_time_to_interruption_s: float) -> CheckpointPace:
    """Return the pace for the hyperparameter `checkpoint_interval`; 0 chooses the interval by cost."""
    if interval == CHOSEN:
        return ChosenPace(mean_time_to_interruption_s=mean_time_to_interruption_s)
    return FixedPace(interval)


class FixedPace:
    """Pace with a checkpoint at each multiple of `interval` steps, or with none if it is -1.

    `Checkpointer.save` may postpone a checkpoint.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval

    def is_due(self, step: int, *, is_writing: bool) -> bool:  # noqa: ARG002 the interface
        """Return whether the step is a multiple of the interval; always False for interval -1."""
        return self._interval > 0 and step % self._interval == 0

    def note_cost(self, cost_s: float) -> None:
        """Ignore the cost of a checkpoint and return None, because the interval is fixed."""

    def note_past(self, *, interruptions: int, trained_s: float) -> None:
        """Ignore the run's past, because the interval is fixed."""


class ChosenPace:
    """Pace that chooses the interval with the least loss of time, again after each checkpoint.

    - The first checkpoint after a start or resume follows the tenth step, since the cost must be measured
      first.
    - Only one checkpoint is written at a time. If one is due during a write, it waits for the end of that
      write.
    - The expected time between interruptions is `mean_time_to_interruption_s`, or the run's observed mean if
      that is shorter.
    """

    def __init__(
        self, *, mean_time_to_interruption_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mean_time_to_interruption_s = mean_time_to_interruption_s
        self._clock = clock
        self._interval = FIRST_AFTER_STEPS
        # Both (step, time): of the last checkpoint, and of the last step.
        self._last = self._now = (0, 0.0)
        self._first: tuple[int, float] | None = None
        self._interruptions, self._trained_s = 0, 0.0
        self._costs_s: list[float] = []

    def is_due(self, step: int, *, is_writing: bool) -> bool:
        """Return whether a checkpoint follows `step`: the interval is over, and none is being written.

        It must be called once per step.
        """
        self._now = (step, self._clock())
        if self._first is None:  # a start's first step includes the warm-up, so it is not timed
            self._first, self._last = self._now, (step - 1, self._now[1])
        is_due = not is_writing and step - self._last[0] >= self._interval
        if is_due:
            self._last = self._now
        return is_due

    def note_cost(self, cost_s: float) -> IntervalChoice | None:
        """Choose the interval from the highest cost of the last three checkpoints and the mean step time.

        `cost_s` is the cost of the last checkpoint in seconds, as calculated by `Checkpointer.finish`. Return None
        if this process has not taken two steps yet.
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
        """Record the run's interruptions and training seconds before this process started."""
        self._interruptions, self._trained_s = interruptions, trained_s

    def _expected_s(self, trained_s: float) -> float:
        """Return the expected seconds of training until the next interruption.

        `trained_s` is the training time of the whole run so far, in seconds. The result is
        `mean_time_to_interruption_s`, or the run's own mean if that is shorter. The run's own mean is
        `trained_s` divided by the number of interruptions. It is used only after two or more interruptions,
        and only if the training time before this process started is known. A checkpoint of an earlier version
        of the trainer does not record this time. After a resume from such a checkpoint, the result is
        `mean_time_to_interruption_s`.

        Example: with `mean_time_to_interruption_s` 3600, `trained_s` 120 and 3 interruptions, return 40.
        """
        is_known = self._interruptions > 1 and self._trained_s > 0
        seen_s = trained_s / self._interruptions if is_known else math.inf
        return min(self._mean_time_to_interruption_s, seen_s)


CheckpointPace = FixedPace | ChosenPace
"""Schedule of a run's checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """A checkpoint interval in steps, and the reason for its length."""

    steps: int
    reason: str


def choose_interval(
    *, cost_s: float, step_s: float, mean_time_to_interruption_s: float
) -> IntervalChoice:
    """Return the interval, in steps of `step_s` seconds, for checkpoints that stall training for `cost_s` seconds.

    The interval is Daly's optimum. If checkpoints would then cost more than 1 % of the training time, the
    interval is extended, up to twice the optimum. At twice the optimum, checkpoints and redone work together
    cost a quarter more than at the optimum. The ratio of these costs is (T / T_opt + T_opt / T) / 2, with the
    interval T and the optimum T_opt. It is 1.25 for T = 2 T_opt.

    Example: 0.1 s per checkpoint, 0.2 s per step and an interruption per 3600 s give 26.8 s, or 134 steps.
    """
    best_s = daly_interval_s(cost_s=cost_s, mean_time_to_interruption_s=mean_time_to_interruption_s)
    cheap_s = cost_s / MAX_COST_SHARE
    interval_s = max(best_s, min(cheap_s, MAX_STRETCH * best_s))
    steps = max(1, math.ceil(interval_s / step_s))
    share = cost_s / (steps * step_s)
    why = "extended to cost less" if interval_s > best_s else "Daly's optimum"
    reason = (
        f"{why}: {interval_s:.3g} s at {step_s:.3g} s per step; a checkpoint costs {cost_s:.3g} s "
        f"({share:.2%} of training), an interruption every {mean_time_to_interruption_s:g} s"
    )
    return IntervalChoice(steps=steps, reason=reason)


def daly_interval_s(*, cost_s: float, mean_time_to_interruption_s: float) -> float:
    """Return the optimal training time between two checkpoints in seconds, by Daly's higher-order estimate.

    Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    equation 37: sqrt(2 C M) [1 + 1/3 sqrt(C / (2 M)) + 1/9 (C / (2 M))] - C if C < 2 M, otherwise M.
    C is the cost of a checkpoint, and M is the mean time to an interruption.

    Examples (Daly's figures 3 to 5): a cost of 5 min gives 117 min for M = 24 h, 57 min for M = 6 h and
    9.1 min for M = 15 min.
    """
    mean = mean_time_to_interruption_s
    if cost_s >= 2 * mean:
        return mean
    part = cost_s / (2 * mean)
    series = 1 + math.sqrt(part) / 3 + part / 9
    return math.sqrt(2 * cost_s * mean) * series - cost_s
