"""Series of numbers by step, with roll-backs after restarts, and robust statistics of such series."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Standard deviation of a normal distribution in units of its MAD (1 / Phi^-1(3/4)).
SIGMA_PER_MAD = 1.4826
# Standard error of the median of normal numbers in units of the standard error of their mean: sqrt(pi / 2).
SIGMA_PER_MEDIAN = 1.2533
LEAST_OBSERVATIONS = 8
MOST_OBSERVATIONS = 8192
"""Number of observations of one rank that are kept if only the newest are needed."""


def median_and_mad(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the median absolute deviation from it.

    Worked: 1, 2, 3, 4, 100 have the median 3 and the deviation 1.
    """
    middle = median(values)
    return middle, median(abs(value - middle) for value in values)


def noise_of(values: Sequence[float]) -> float:
    """Return the standard deviation of the values around their trend, from the differences of neighbors.

    The standard deviation of the differences is estimated as 1.4826 times their MAD (median absolute
    deviation), because the MAD ignores single spikes. The result is this estimate divided by sqrt(2), because
    the differences of independent neighbors have sqrt(2) times the standard deviation of the values.

    Worked: a straight line has no noise. The values 0, 1, 3, 6 have the differences 1, 2, 3. Their MAD is 1, so
    the result is 1.4826 / sqrt(2) = 1.05.
    """
    steps = [b - a for a, b in pairwise(values)]
    if not steps:
        return 0.0
    _, spread = median_and_mad(steps)
    return SIGMA_PER_MAD * spread / math.sqrt(2)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile, interpolated linearly between neighbors. Worked: the 0.95 quantile of 0 ... 100 is 95."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class History:
    """Series of one number's observations in a run, with access by step.

    By default all observations are kept, since a restart may roll back any number of steps. Each
    takes 16 bytes.

    Args:
        most: number of observations above which the older half is dropped; None keeps all. A
            roll-back to a dropped observation leaves the series empty.

    Attributes:
        num_dropped: number of older observations that are no longer kept.
    """

    __slots__ = ("_most", "num_dropped", "steps", "values")

    def __init__(self, most: int | None = None) -> None:
        self.steps = array("q")
        self.values = array("d")
        self._most, self.num_dropped = most, 0

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, value: float) -> None:
        """Append one observation; steps must not decrease."""
        self.steps.append(step)
        self.values.append(value)
        if self._most is not None and len(self) > self._most:
            self.num_dropped += self._most // 2
            del self.steps[: self._most // 2], self.values[: self._most // 2]

    def at(self, step: int) -> float | None:
        """Return the value of the newest observation at or before `step`, or None before the first."""
        place = bisect_right(self.steps, step)
        return self.values[place - 1] if place else None

    def between(self, after: int, until: int) -> list[float]:
        """Return the values of the steps in (after, until]."""
        places = slice(bisect_right(self.steps, after), bisect_right(self.steps, until))
        return self.values[places].tolist()

    def last(self, num_steps: int) -> list[float]:
        """Return the values of the last `num_steps` steps, including that of the newest observation."""
        return self.between(self.steps[-1] - num_steps, self.steps[-1]) if self.steps else []

    def roll_back(self, step: int) -> None:
        """Forget the observations after `step`."""
        place = bisect_right(self.steps, step)
        del self.steps[place:], self.values[place:]
        self.num_dropped = self.num_dropped if place else 0


class SeriesRow:
    """Count of consecutive observations that meet a condition, with a history for roll-backs.

    The count stops at `most`. Only its newest changes are stored.
    """

    __slots__ = ("_history", "_most")

    def __init__(self, most: int | None = None) -> None:
        self._history, self._most = History(MOST_OBSERVATIONS), most

    @property
    def length(self) -> int:
        """Number of consecutive observations up to now that meet the condition."""
        return int(self._history.values[-1]) if len(self._history) else 0

    @property
    def has_ended(self) -> bool:
        """True if observations that meet the condition were followed by one that does not."""
        return 0 in self._history.values

    @property
    def onset(self) -> int:
        """Step of the first observation that `length` counts. Only valid while `length` is above 0."""
        return self._history.steps[-min(self.length, len(self._history))]

    def add(self, step: int, *, is_met: bool) -> int:
        """Add one observation; return the new count of consecutive ones that meet the condition."""
        length = self.length
        if is_met and length != self._most:
            self._history.add(step, length + 1)
        elif not is_met and length:
            self._history.add(step, 0)
        return self.length

    def roll_back(self, step: int) -> None:
        """Forget the observations after `step`."""
        self._history.roll_back(step)


class Smoothed:
    """Exponential moving average with bias correction, with a history for roll-backs.

    At an observation n steps after the previous one, the weights of all earlier observations are multiplied by
    `decay` to the power of n. Source of the correction: Kingma and Ba 2015, section 3. Worked: with a decay of
    0.5, the value 4 and one step later the value 8 have the average (0.5 * 0.5 * 4 + 0.5 * 8) / 0.75 = 6.667.
    """

    __slots__ = ("_decay", "_states", "_weights", "history")

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self.history = History()
        self._states = array("d")
        self._weights = array("d")

    def add(self, step: int, value: float) -> float:
        """Add one observation; return the new average."""
        last = self.history.steps[-1] if self.history.steps else step - 1
        decay = self._decay ** max(1, step - last)
        state = (self._states[-1] if self._states else 0.0) * decay + (1 - decay) * value
        weight = (self._weights[-1] if self._weights else 0.0) * decay + (1 - decay)
        self._states.append(state)
        self._weights.append(weight)
        self.history.add(step, state / weight if weight else value)
        return self.history.values[-1]

    def roll_back(self, step: int) -> None:
        """Forget the observations after `step`."""
        self.history.roll_back(step)
        del self._states[len(self.history) :], self._weights[len(self.history) :]
