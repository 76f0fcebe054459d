"""Result of one step of any strategy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of a step, the same on every host.

    Attributes:
        loss: mean over the global batch, in nats per token.
        norm: norm of the gradient before clipping.
        is_stopping: whether any host received SIGTERM.
    """

    loss: float
    norm: float
    is_stopping: bool
