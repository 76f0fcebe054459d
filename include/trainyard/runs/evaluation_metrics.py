"""Metrics in an evaluation.json, written by any script."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def metrics_of(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers under `metrics`, or those of the document itself if it has no such part.

    Booleans do not count as numbers. NaN and infinities are left out: they meet no condition, and are not valid JSON.
    """
    part = document.get("metrics")
    return {
        name: float(value)
        for name, value in (part if isinstance(part, dict) else document).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
