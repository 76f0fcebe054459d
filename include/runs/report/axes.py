"""Scales and ticks of a chart: round numbers, few digits."""

from __future__ import annotations

import math
from dataclasses import dataclass

TIMES = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear scale from values to pixels, with its ticks.

    Attributes:
        low, high: the values at the two ends.
        start, end: their pixels (start > end on a y axis, which grows upwards).
        ticks: round values between low and high.
        exponent: the power of ten that tick labels leave out; it belongs into the axis label.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    exponent: int = 0

    def pixel(self, value: float) -> float:
        """Return where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def tick_label(self, tick: float) -> str:
        """Return the tick's text, without needless digits."""
        step = (self.ticks[1] - self.ticks[0]) / 10**self.exponent if len(self.ticks) > 1 else 1
        digits = next((d for d in range(9) if math.isclose(step, round(step, d))), 9)
        return f"{tick / 10**self.exponent:,.{digits}f}"

    @property
    def factor(self) -> str:
        """The left-out power of ten as text; empty when there is none."""
        return f"{TIMES}10{str(self.exponent).translate(_SUPERSCRIPTS)}" if self.exponent else ""


def linear_axis(
    values: list[float], *, start: float, end: float, num_ticks: int, from_zero: bool = False
) -> Axis:
    """Return the axis for the values: padded a little on top and below unless it starts at zero."""
    low, high = min(values), max(values)
    if from_zero:
        low = min(0.0, low)
    spread = high - low or abs(high) or 1.0
    high += spread * 0.06
    low = low if from_zero or low == 0 else low - spread * 0.06
    return _axis(low, high, start=start, end=end, num_ticks=num_ticks)


def exact_axis(low: float, high: float, *, start: float, end: float, num_ticks: int) -> Axis:
    """Return the axis that ends exactly at low and high: for steps and for time."""
    return _axis(low, high if high > low else low + 1, start=start, end=end, num_ticks=num_ticks)


def _axis(low: float, high: float, *, start: float, end: float, num_ticks: int) -> Axis:
    ticks = nice_ticks(low, high, num_ticks)
    largest = max(abs(low), abs(high))
    size = math.floor(math.log10(largest)) if largest else 0
    is_far = size < -2 or size >= 5
    exponent = size if is_far else 0
    return Axis(low=low, high=high, start=start, end=end, ticks=ticks, exponent=exponent)


def nice_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return about `most` round values: 1, 2, 2.5 or 5 times a power of ten apart."""
    raw = (high - low) / max(1, most)
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))
