"""Result of one check, and the equality of two values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# continuity.json rounds times to milliseconds, stalls and shares to six digits, money not at all.
TOLERANCES = {"_usd": 1e-12, "stall_seconds": 1e-6, "_share": 1e-6, "epochs": 1e-6}
SECONDS_TOLERANCE = 0.001
MOST_DISAGREEMENTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A difference from the recount: its place, the value found and the expected value."""

    where: str
    got: object
    expected: object

    def __str__(self) -> str:
        return f"{self.where}: got {self.got}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its claim, the number of compared values, and the disagreements."""

    claim: str
    seen: str
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def is_ok(self) -> bool:
        """True if nothing disagrees."""
        return not self.disagreements

    def lines(self) -> Iterator[str]:
        """Yield `ok` with the compared values, or `DISAGREES` for each finding."""
        if self.is_ok:
            yield f"ok         {self.claim} ({self.seen})"
        for each in self.disagreements[:MOST_DISAGREEMENTS]:
            yield f"DISAGREES  {self.claim}: {each}"
        if len(self.disagreements) > MOST_DISAGREEMENTS:
            rest = len(self.disagreements) - MOST_DISAGREEMENTS
            yield f"DISAGREES  {self.claim}: and {rest} more"


def compared(got: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[Disagreement, ...]:
    """Return the fields of `expected` that `got` lacks, or has with another value."""
    return tuple(
        Disagreement(where=name, got=got.get(name, "nothing"), expected=value)
        for name, value in expected.items()
        if not _is_same(name, got.get(name, "nothing"), value)
    )


def _is_same(name: str, got: object, expected: object) -> bool:
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, (int, float)) and isinstance(expected, (int, float)):
        tolerance = next(
            (each for end, each in TOLERANCES.items() if name.endswith(end)), SECONDS_TOLERANCE
        )
        is_measured = isinstance(got, float) or isinstance(expected, float)
        return math.isclose(got, expected, rel_tol=1e-12, abs_tol=tolerance * is_measured)
    return got == expected
