"""Precision and compilation of a training whose conf leaves them open, by the accelerators of its instance types.

A run has one arithmetic, whichever of its types it gets: bf16 and compiled if all of them have bf16 in hardware, else
fp32 and eager. `trainer.precision.settle` decides alike by the device of a job that was sent neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import has_bf16

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTO = "auto"


def settled_precision(given: str, instance_types: Iterable[str]) -> str:
    """Return the given precision, or for "auto" that of the types; bf16 for no types at all."""
    if given != AUTO:
        return given
    return "bf16" if all(map(has_bf16, instance_types)) else "fp32"


def settled_compile(given: Any, instance_types: Iterable[str]) -> bool:
    """Return the given hyperparameter `compile`, or for None whether the types have bf16; True for no types at all."""
    if given is None:
        return all(map(has_bf16, instance_types))
    return str(given).lower() == "true"
