"""Ranges of a hyperparameter search, with the SDK's names: integer, continuous, categorical."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.specs.reading import UNKNOWN, read_spec

MOST_CATEGORIES = 30
LONGEST_TEXT = 256
"""Longest name or categorical value of a request, in characters (botocore, CreateHyperParameterTuningJob)."""


class Scaling(StrEnum):
    """Scale on which a range is searched; with `Auto` the service chooses it."""

    AUTO = "Auto"
    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE_LOGARITHMIC = "ReverseLogarithmic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRange:
    """Every number from `min_value` to `max_value`."""

    min_value: float
    max_value: float
    scaling_type: Scaling = Scaling.AUTO

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            SpecError: `min_value` is not below `max_value`, or `scaling_type` does not allow these bounds.
        """
        _check(_scaled_findings(self.min_value, self.max_value, self.scaling_type))

    @property
    def num_values(self) -> float:
        """Number of distinct values: infinite."""
        return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRange:
    """Every whole number from `min_value` to `max_value`, both included."""

    min_value: int
    max_value: int
    scaling_type: Scaling = Scaling.AUTO

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            SpecError: `min_value` is not below `max_value`, or the bounds or the scale are not valid.
        """
        findings = list(_scaled_findings(self.min_value, self.max_value, self.scaling_type))
        if self.scaling_type is Scaling.REVERSE_LOGARITHMIC:
            findings = [
                Finding(
                    where="scaling_type",
                    what="has a value that integer ranges do not support",
                    got=self.scaling_type,
                    allowed="Auto, Linear, Logarithmic",
                )
            ]
        _check(findings)

    @property
    def num_values(self) -> float:
        """Number of distinct values."""
        return self.max_value - self.min_value + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalRange:
    """One of `values`: text, numbers or booleans, passed to the script like static hyperparameters."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            SpecError: there are no values or too many, a value occurs twice, or it is not text, a number or a boolean.
        """
        _check(_category_findings(self.values))

    @property
    def num_values(self) -> float:
        """Number of distinct values."""
        return len(self.values)


ParameterRange = ContinuousRange | IntegerRange | CategoricalRange

_KINDS: Mapping[str, type[ParameterRange]] = {
    "continuous": ContinuousRange,
    "integer": IntegerRange,
    "categorical": CategoricalRange,
}


def read_range(value: object, *, where: str = "range") -> ParameterRange:
    """Read the range that a user wrote: `{"type": "continuous", "min_value": 1e-4, "max_value": 0.1}`, or a list.

    A list of values is a categorical range.

    Raises:
        SpecError: the value is neither, or its bounds or values are invalid.
    """
    if isinstance(value, ContinuousRange | IntegerRange | CategoricalRange):
        return value
    if isinstance(value, (list, tuple)):
        return read_spec(CategoricalRange, {"values": value}, where=where)
    given = value if isinstance(value, Mapping) else {}
    if given.get("type") is UNKNOWN:
        return cast("ParameterRange", UNKNOWN)
    kind = _KINDS.get(str(given.get("type")))
    if kind is None:
        near = near_matches(str(given.get("type")), _KINDS)
        raise SpecError(
            Finding(
                where=f"{where}.type" if "type" in given else where,
                what="is not a kind of range" if "type" in given else "is not a range with a type",
                got=repr(given.get("type", value)),
                allowed="type continuous or integer with min_value and max_value, or type categorical with values",
                next_step=did_you_mean(near[:1]),
            )
        )
    return read_spec(kind, {k: v for k, v in given.items() if k != "type"}, where=where)


def is_logarithmic(given: ParameterRange) -> bool:
    """Return whether the range is logarithmic.

    A range with the scale `Auto` counts as logarithmic if it is positive and spans at least a factor of 100.
    """
    if isinstance(given, CategoricalRange):
        return False
    if given.scaling_type is Scaling.AUTO:
        return given.min_value > 0 and given.max_value / given.min_value >= 100
    return given.scaling_type is Scaling.LOGARITHMIC


def _scaled_findings(low: float, high: float, scaling: Scaling) -> Iterator[Finding]:
    if low >= high:
        yield Finding(
            where="min_value",
            what="is not below max_value",
            got=f"{low:g} to {high:g}",
            next_step="swap them, or set a static hyperparameter instead",
        )
    if scaling is Scaling.LOGARITHMIC and low <= 0:
        yield Finding(
            where="min_value",
            what="is not positive, so it has no logarithm",
            got=f"{low:g}",
            allowed="above 0 with scaling_type Logarithmic",
        )
    if scaling is Scaling.REVERSE_LOGARITHMIC and not (low >= 0 and high < 1):
        yield Finding(
            where="scaling_type",
            what="is ReverseLogarithmic, which needs a range within 0 <= x < 1",
            got=f"{low:g} to {high:g}",
            allowed="a range such as 0.9 to 0.999",
        )


def _category_findings(values: tuple[Any, ...]) -> Iterator[Finding]:
    if not 0 < len(values) <= MOST_CATEGORIES:
        yield Finding(
            where="values",
            what="has too many values" if values else "is empty",
            got=f"{len(values)} values",
            allowed=f"1 to {MOST_CATEGORIES} values",
        )
    odd = [each for each in values if not isinstance(each, (str, int, float, bool))]
    if odd:
        yield Finding(
            where="values",
            what="has a value that is not text, a number or a boolean",
            got=repr(odd[0]),
            next_step="write a list or a mapping as JSON text, and read it in the script",
        )
        return
    texts = [json.dumps(each) for each in values]
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        yield Finding(
            where="values",
            what="has a value more than once",
            got=str(twice[0]),
            next_step="remove the repeated value",
        )
    long = [text for text in texts if len(text) > LONGEST_TEXT]
    if long:
        yield Finding(
            where="values",
            what="has a value that is too long as JSON",
            got=f"{len(long[0])} characters",
            allowed=f"at most {LONGEST_TEXT}",
        )


def _check(findings: Iterator[Finding] | list[Finding]) -> None:
    found = list(findings)
    if found:
        raise SpecError(found, subject="parameter range")
