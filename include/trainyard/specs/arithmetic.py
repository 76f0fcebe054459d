"""Default precision and compilation of a training, derived from the accelerators of its instance types.

All instance types of a run use the same settings: bf16 and compiled if all types have bf16 in hardware, otherwise fp32
and eager. If a job's request sets neither, `trainer.precision.settle` applies the same rule to the job's device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import has_bf16

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTO = "auto"


def settled_precision(given: str, instance_types: Iterable[str]) -> str:
    """Return the given precision. For "auto", return bf16 if all types have bf16, otherwise fp32.

    Without instance types, "auto" gives bf16.
    """
    if given != AUTO:
        return given
    return "bf16" if all(map(has_bf16, instance_types)) else "fp32"


def settled_compile(given: Any, instance_types: Iterable[str]) -> bool:
    """Return the given `compile`. For None, return whether all types have bf16; True if there are no types."""
    if given is None:
        return all(map(has_bf16, instance_types))
    return str(given).lower() == "true"
