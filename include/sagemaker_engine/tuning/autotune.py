"""Autotune: ranges and limits that the engine chooses if the request does not set them.

The service's rule is not documented. The engine searches integers from a quarter to four times their hint, numbers
between 0 and 1 from a tenth to ten times (at most 0.99), and other positive numbers from a tenth to ten times. Values
that are not positive numbers stay at their hint.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX_JOBS = 20
_FRACTION_CEILING = 0.99


def with_chosen_ranges(
    ranges: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return ParameterRanges with a range for each eligible AutoParameter, and the others' values."""
    chosen: dict[str, Any] = {key: list(value) for key, value in ranges.items()}
    fixed = {}
    for auto in chosen.pop("AutoParameters", []):
        kind, found = _range(auto["Name"], auto["ValueHint"])
        if found is None:
            fixed[auto["Name"]] = auto["ValueHint"]
        else:
            chosen.setdefault(kind, []).append(found)
    return chosen, fixed


def _range(name: str, hint: str) -> tuple[str, dict[str, str] | None]:
    try:
        number = float(hint)
    except ValueError:
        return "", None
    if not (math.isfinite(number) and number > 0):
        return "", None
    if hint.strip().lstrip("+").isdigit():
        low, high = max(1, int(hint) // 4), int(hint) * 4
        kind = "IntegerParameterRanges"
        return kind, {"Name": name, "MinValue": str(low), "MaxValue": str(high)}
    ceiling = _FRACTION_CEILING if number < 1 else math.inf
    low_high = (number / 10, max(number, min(number * 10, ceiling)))
    kind = "ContinuousParameterRanges"
    return kind, {"Name": name, "MinValue": repr(low_high[0]), "MaxValue": repr(low_high[1])}
