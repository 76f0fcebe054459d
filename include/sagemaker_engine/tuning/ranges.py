"""Hyperparameter ranges: their values, scales, and conversion of values to text."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AUTO_LOGARITHMIC_RATIO = 100.0
"""Smallest ratio of a positive range's ends for which Auto selects a logarithmic scale. The developer guide recommends
logarithmic for "several orders of magnitude" and linear for less than one.
"""

Value = float | int | str
Point = dict[str, str]
"""Values by name, as strings, like all hyperparameters of a training job."""


class RangeError(Exception):
    """A range cannot be searched; the message states why."""


class RangeKind(StrEnum):
    """The kinds of ranges, by their name in ParameterRanges."""

    INTEGER = "Integer"
    CONTINUOUS = "Continuous"
    CATEGORICAL = "Categorical"


class RangeScaling(StrEnum):
    """The scale on which a range is searched."""

    AUTO = "Auto"
    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE_LOGARITHMIC = "ReverseLogarithmic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One range, with `low` and `high` included; `values` are those of a categorical range."""

    name: str
    kind: RangeKind
    low: float = 0.0
    high: float = 0.0
    scaling: RangeScaling = RangeScaling.LINEAR
    values: tuple[str, ...] = ()

    @property
    def num_values(self) -> float:
        """Number of values in the range; infinite for a continuous range of more than one value."""
        match self.kind:
            case RangeKind.CATEGORICAL:
                return len(set(self.values))
            case RangeKind.INTEGER:
                return self.high - self.low + 1
            case RangeKind.CONTINUOUS:
                return math.inf if self.low < self.high else 1
        assert_never(self.kind)

    def read(self, text: str) -> Value | None:
        """Return the value in a hyperparameter's text; None if it is not in the range."""
        if self.kind is RangeKind.CATEGORICAL:
            return text if text in self.values else None
        try:
            number = float(text)
        except ValueError:
            return None
        if not self.low <= number <= self.high:
            return None
        if self.kind is RangeKind.CONTINUOUS:
            return number
        return int(number) if number == int(number) else None

    def at(self, share: float) -> str:
        """Return the value at a fraction of the range's scale (0 <= share < 1), as hyperparameter text.

        Example: on a logarithmic scale from 0.0001 to 1, share 0.5 gives 0.01.
        """
        if self.kind is RangeKind.CATEGORICAL:
            values = tuple(self)
            return values[int(share * len(values))]
        if self.kind is RangeKind.INTEGER:  # Each whole number has the room around it.
            value = _between(self.low - 0.5, self.high + 0.5, share, self.scaling)
            return self.write(round(value))
        return self.write(_between(self.low, self.high, share, self.scaling))

    def share_of(self, text: str) -> float:
        """Return the position of a value on the range's scale, from 0 to 1; the inverse of `at`.

        Each category and each integer covers an interval of the scale; its position is the center of this interval.
        The position is 0.5 for the only value of a range.

        Example: on a logarithmic scale from 0.0001 to 1, the position of 0.01 is 0.5.
        """
        if self.kind is RangeKind.CATEGORICAL:
            values = tuple(self)
            return (values.index(text) + 0.5) / len(values)
        if self.low == self.high:
            return 0.5
        if self.kind is RangeKind.INTEGER:
            return _share(self.low - 0.5, self.high + 0.5, float(text), self.scaling)
        return _share(self.low, self.high, float(text), self.scaling)

    def write(self, value: Value) -> str:
        """Return the value as a hyperparameter's text; a number is clipped to the range first."""
        if self.kind is RangeKind.CATEGORICAL:
            return str(value)
        clipped = min(max(float(value), self.low), self.high)
        return str(round(clipped)) if self.kind is RangeKind.INTEGER else repr(clipped)

    def __iter__(self) -> Iterator[str]:
        """Yield all values of a finite range, as text."""
        if self.kind is RangeKind.CATEGORICAL:
            yield from dict.fromkeys(self.values)
        elif self.kind is RangeKind.INTEGER:
            yield from (str(value) for value in range(int(self.low), int(self.high) + 1))
        else:
            yield repr(self.low)


@dataclass(frozen=True, slots=True)
class Space:
    """All ranges of one training job definition."""

    ranges: tuple[Range, ...]

    @property
    def num_points(self) -> float:
        """Return the number of combinations."""
        return math.prod(each.num_values for each in self.ranges)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the tuned hyperparameters."""
        return frozenset(each.name for each in self.ranges)

    def points(self) -> Iterator[Point]:
        """Yield every combination of a finite space; the last range changes fastest."""
        for texts in itertools.product(*self.ranges):
            yield {each.name: text for each, text in zip(self.ranges, texts, strict=True)}

    def project(self, hyperparameters: Mapping[str, str]) -> Point | None:
        """Return the tuned hyperparameters of a job; None if one is absent or outside of its range."""
        point = {each.name: hyperparameters.get(each.name) for each in self.ranges}
        inside = (
            (text := point[each.name]) is not None and each.read(text) is not None
            for each in self.ranges
        )
        return {name: str(text) for name, text in point.items()} if all(inside) else None


def parse_ranges(parameter_ranges: Mapping[str, Any]) -> Space:
    """Return the space of a ParameterRanges structure. AutoParameters are ignored.

    Raises:
        RangeError: A range is empty, has an end that is not a number, or has a scaling that does not fit its
            values or kind.
    """
    found = [
        _numeric(each, kind)
        for kind in (RangeKind.INTEGER, RangeKind.CONTINUOUS)
        for each in parameter_ranges.get(f"{kind}ParameterRanges", [])
    ]
    found += [
        Range(name=each["Name"], kind=RangeKind.CATEGORICAL, values=tuple(each["Values"]))
        for each in parameter_ranges.get("CategoricalParameterRanges", [])
    ]
    return Space(tuple(_resolve(each) for each in found))


def _between(low: float, high: float, share: float, scaling: RangeScaling) -> float:
    match scaling:
        case RangeScaling.LOGARITHMIC:
            return float(low * (high / low) ** share)
        case RangeScaling.REVERSE_LOGARITHMIC:
            return float(1 - (1 - low) * ((1 - high) / (1 - low)) ** share)
        case _:
            return low + share * (high - low)


def _share(low: float, high: float, value: float, scaling: RangeScaling) -> float:
    match scaling:
        case RangeScaling.LOGARITHMIC:
            return math.log(value / low) / math.log(high / low)
        case RangeScaling.REVERSE_LOGARITHMIC:
            return math.log((1 - value) / (1 - low)) / math.log((1 - high) / (1 - low))
        case _:
            return (value - low) / (high - low)


def _numeric(given: Mapping[str, Any], kind: RangeKind) -> Range:
    name = given["Name"]
    low, high = (_number(name, key, given[key], kind) for key in ("MinValue", "MaxValue"))
    if low > high:
        raise RangeError(
            f"Invalid range for hyperparameter {name}: MinValue [{given['MinValue']}] must be less "
            f"than or equal to MaxValue [{given['MaxValue']}]."
        )
    scaling = RangeScaling(given.get("ScalingType", RangeScaling.AUTO))
    if scaling is RangeScaling.LOGARITHMIC and low <= 0:
        raise RangeError(
            f"Invalid scaling for hyperparameter {name}: Logarithmic scaling works only for ranges "
            f"that have only values greater than 0; MinValue is [{given['MinValue']}]."
        )
    if scaling is RangeScaling.REVERSE_LOGARITHMIC and kind is RangeKind.INTEGER:
        raise RangeError(
            f"Invalid scaling for hyperparameter {name}: ReverseLogarithmic scaling is supported "
            "only for continuous hyperparameter ranges."
        )
    if scaling is RangeScaling.REVERSE_LOGARITHMIC and not 0 <= low <= high < 1:
        raise RangeError(
            f"Invalid scaling for hyperparameter {name}: ReverseLogarithmic scaling works only for "
            "ranges that are entirely within 0 <= x < 1.0; got "
            f"[{given['MinValue']}, {given['MaxValue']}]."
        )
    return Range(name=name, kind=kind, low=low, high=high, scaling=scaling)


def _number(name: str, key: str, text: str, kind: RangeKind) -> float:
    try:
        number = float(int(text)) if kind is RangeKind.INTEGER else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        noun = "an integer" if kind is RangeKind.INTEGER else "a number"
        raise RangeError(f"Invalid range for hyperparameter {name}: {key} [{text}] must be {noun}.")
    return number


def _resolve(given: Range) -> Range:
    """Replace the scaling type Auto of a range by the scaling type that Auto selects; return the new range.

    A range with another scaling type is returned unchanged.
    """
    if given.scaling is not RangeScaling.AUTO:
        return given
    wide = given.low > 0 and given.high / given.low >= AUTO_LOGARITHMIC_RATIO
    return replace(given, scaling=RangeScaling.LOGARITHMIC if wide else RangeScaling.LINEAR)
