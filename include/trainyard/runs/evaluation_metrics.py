"""Reading of numbers from JSON that a user's script wrote, such as evaluation.json."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def metrics_of(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers under `metrics`, or those of the document itself if it has no such part.

    Booleans do not count as numbers. NaN and infinities are left out, because they are not valid JSON and must
    not meet a condition such as `register_when`.
    """
    part = document.get("metrics")
    return {
        name: number
        for name, value in (part if isinstance(part, dict) else document).items()
        if (number := finite_number(value)) is not None
    }


def finite_number(value: object) -> float | None:
    """Return the value as a float; None if it is not a finite number. Booleans do not count as numbers."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]  # checked above
