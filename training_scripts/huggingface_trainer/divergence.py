"""Divergence check of a run, by the Trainer's log; without it the run would train on and save NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from huggingface_trainer.hyperparameters import HuggingFaceHyperparameters


def divergence(
    logs: Mapping[str, Any], *, since: int, step: int, hp: HuggingFaceHyperparameters
) -> NonFiniteError | None:
    """Return the error of a run whose weights are NaN or about to be; None if all is well.

    Each rank finds the same: the Trainer logs the mean loss of all ranks, and the norm of their mean gradient. One step
    that is not finite makes the mean of all since the last line so. With fp16 the scaler skips the step of a norm that
    overflowed.

    Args:
        logs: of the steps after `since`, up to `step`.
        since: the step of the line before.
        step: the one that was made last.
        hp: of the run.
    """
    loss, norm = float(logs["loss"]), float(logs.get("grad_norm", 0.0))
    if math.isfinite(loss) and (math.isfinite(norm) or hp.precision == "fp16"):
        return None
    seen = f"the loss is {loss:.6f} but the gradient norm is {norm}"
    steps = f"step {step}" if step == since + 1 else f"steps {since + 1} to {step}"
    return NonFiniteError(
        f"in {steps} {seen if math.isfinite(loss) else f'the mean loss is {loss}'}; learning rate "
        f"{float(logs['learning_rate']):g}, precision {hp.precision}, clip_norm {hp.clip_norm:g}. Checkpoints hold the "
        "state before. Lower learning_rate, raise warmup_steps, set clip_norm 1 and precision bf16 or fp32, or look "
        "for broken samples"
    )
