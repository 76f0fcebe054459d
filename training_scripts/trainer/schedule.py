"""Learning rate schedule as a pure function of the step, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSchedule:
    """Linear warm-up to `peak`, then a cosine down to `peak * min_ratio` at `max_steps`.

    Source: Loshchilov and Hutter 2017, SGDR, equation 5. Example: with peak 1, no warm-up, ratio 0
    and 100 steps, the rate of step 50 (half-way) is 0.5.
    """

    peak: float
    warmup_steps: int
    max_steps: int
    min_ratio: float

    def at(self, step: int) -> float:
        """Return the learning rate of optimizer step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        progress = min(1.0, (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps))
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.peak * (self.min_ratio + (1 - self.min_ratio) * cosine)


def make_schedule(hyperparameters: Hyperparameters, *, max_steps: int) -> LearningRateSchedule:
    """Return the schedule of a run of `max_steps` steps, with its peak scaled to the global batch size.

    Linear scaling: Goyal et al. 2017, section 2.1. Square root, which suits Adam better: Malladi et
    al. 2022, section 4. Example: 1e-3, tuned at batch 8, becomes 4e-3 (linear) or 2e-3 (sqrt) at batch 32.
    """
    peak = hyperparameters.learning_rate
    if hyperparameters.reference_batch_size:
        ratio = hyperparameters.global_batch_size / hyperparameters.reference_batch_size
        peak *= ratio if hyperparameters.learning_rate_scaling == "linear" else math.sqrt(ratio)
    warmup_steps = hyperparameters.warmup_steps
    return LearningRateSchedule(
        peak=peak,
        warmup_steps=max_steps // 10 if warmup_steps is None else min(warmup_steps, max_steps),
        max_steps=max_steps,
        min_ratio=hyperparameters.min_learning_rate_ratio,
    )
