"""Result of one step of any strategy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Alike on every host: the mean loss, the gradient's norm before clipping, whether any host was asked to stop."""

    loss: float
    norm: float
    is_stopping: bool
