"""Scales of charts, with ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

TIMES = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Scale(Protocol):
    """Mapping of values to pixels, with ticks."""

    @property
    def start(self) -> float:
        """Pixel of the first value."""

    @property
    def end(self) -> float:
        """Pixel of the last value."""

    @property
    def ticks(self) -> tuple[float, ...]:
        """Values with a label."""

    @property
    def factor(self) -> str:
        """Power of ten that the labels omit, as text; empty if there is none."""

    def pixel(self, value: float) -> float:
        """Return the pixel of a value."""

    def tick_label(self, tick: float) -> str:
        """Return the label of a tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear scale from values to pixels, with its ticks.

    Attributes:
        low, high: values at the two ends.
        start, end: pixels of low and high; start > end on a y axis, which grows upwards.
        ticks: round values between low and high.
        exponent: power of ten that tick labels omit; the axis label shows it.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    exponent: int = 0

    def pixel(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def tick_label(self, tick: float) -> str:
        """Return the label of a tick, with as many decimals as the distance between two ticks needs."""
        step = (self.ticks[1] - self.ticks[0]) / 10**self.exponent if len(self.ticks) > 1 else 1
        digits = next((d for d in range(9) if math.isclose(step, round(step, d))), 9)
        return f"{tick / 10**self.exponent:,.{digits}f}"

    @property
    def factor(self) -> str:
        """Power of ten that the labels omit, as text; empty if there is none."""
        return f"{TIMES}10{str(self.exponent).translate(_SUPERSCRIPTS)}" if self.exponent else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """A logarithmic scale from positive values to pixels."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    factor: str = ""

    def pixel(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def tick_label(self, tick: float) -> str:
        """Return the label of a tick: `0.002`, or `2e-05` below 1e-4."""
        return f"{tick:,.6g}" if tick >= 1e-4 else f"{tick:.0e}".replace("e-0", "e-")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameAxis:
    """A scale of names at equal distances. The value of a name is its index."""

    names: tuple[str, ...]
    start: float
    end: float
    factor: str = ""

    @property
    def ticks(self) -> tuple[float, ...]:
        """Indices of all names."""
        return tuple(float(index) for index in range(len(self.names)))

    def pixel(self, value: float) -> float:
        """Return the pixel of a name's index: the middle of its band."""
        return self.start + (value + 0.5) / len(self.names) * (self.end - self.start)

    def tick_label(self, tick: float) -> str:
        """Return the name."""
        return self.names[int(tick)]


def count_axis(most: int, *, start: float, end: float) -> Axis:
    """Return the axis of integers from 1 to `most`, each in the middle of its band."""
    every = next((each for each in (1, 2, 5, 10, 20, 50) if most / each <= 26), 100)
    ticks = tuple(float(each) for each in range(every, most + 1, every))
    return Axis(low=0.5, high=most + 0.5, start=start, end=end, ticks=ticks)


def log_axis(low: float, high: float, *, start: float, end: float, num_ticks: int) -> LogAxis:
    """Return the logarithmic axis from exactly `low` to exactly `high`, with 0 < `low` < `high`.

    The ticks are 1, 2 and 5 times the powers of ten. If there are more than `num_ticks` of them, 1 and 3 times
    the powers are used. If there are still too many, the powers alone are used.
    """
    ticks: tuple[float, ...] = ()
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [each * 10.0**power for power in powers for each in factors]
        ticks = tuple(each for each in found if low * 0.999 <= each <= high * 1.001)
        if len(ticks) <= num_ticks:
            break
    return LogAxis(low=low, high=high, start=start, end=end, ticks=ticks or (low, high))


_SMALLEST = 1e-300
"""Smallest spread of values. Parts of a smaller one could underflow, so it is drawn as zero."""


def linear_axis(
    values: list[float], *, start: float, end: float, num_ticks: int, from_zero: bool = False
) -> Axis:
    """Return the axis of the values, with a margin of 6 % of their spread at both ends.

    With `from_zero`, the axis begins at 0, or at the lowest value if that is negative, without a margin at that
    end. Without `from_zero`, the margin at the lower end is omitted if the lowest value is 0.
    """
    low, high = min(values), max(values)
    if from_zero:
        low = min(0.0, low)
    spread = high - low or abs(high)
    if spread < _SMALLEST:
        spread = 1.0
    high += spread * 0.06
    low = low if from_zero or low == 0 else low - spread * 0.06
    return _axis(low, high, start=start, end=end, num_ticks=num_ticks)


def exact_axis(low: float, high: float, *, start: float, end: float, num_ticks: int) -> Axis:
    """Return the axis from exactly `low` to exactly `high`, such as for steps and for time."""
    return _axis(low, high if high > low else low + 1, start=start, end=end, num_ticks=num_ticks)


def _axis(low: float, high: float, *, start: float, end: float, num_ticks: int) -> Axis:
    ticks = nice_ticks(low, high, num_ticks)
    largest = max(abs(low), abs(high))
    size = math.floor(math.log10(largest)) if largest else 0
    is_far = size < -2 or size >= 5
    exponent = size if is_far else 0
    return Axis(low=low, high=high, start=start, end=end, ticks=ticks, exponent=exponent)


def nice_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return about `most` round values between low and high, at a distance of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(1, most)
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds per unit, and the unit (s, min or h), for a time axis of this length in seconds."""
    if seconds <= 300:
        return 1.0, "s"
    return (60.0, "min") if seconds <= 4 * 3600 else (3600.0, "h")
