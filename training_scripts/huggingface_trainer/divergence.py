"""Divergence check of a run by means of the Trainer's logs.

Without this check, a diverged run would continue and save NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.framework_hyperparameters import HuggingFaceHyperparameters


def divergence(
    logs: Mapping[str, Any], *, since: int, step: int, hp: HuggingFaceHyperparameters
) -> NonFiniteError | None:
    """Return an error if the loss or the gradient norm is NaN or infinite, otherwise None.

    All ranks have the same result: the Trainer logs the mean loss of all ranks, and the norm of their mean gradient.
    One non-finite step makes the mean loss since the last log non-finite. With fp16 a non-finite norm is allowed, since
    the scaler skips such a step.

    Args:
        logs: logs of the steps after `since`, up to `step`.
        since: step of the previous log.
        step: the last step.
        hp: hyperparameters of the run.
    """
    loss, norm = float(logs["loss"]), float(logs.get("grad_norm", 0.0))
    if math.isfinite(loss) and (math.isfinite(norm) or hp.precision == "fp16"):
        return None
    seen = f"the loss is {loss:.6f} but the gradient norm is {norm}"
    steps = f"step {step}" if step == since + 1 else f"steps {since + 1} to {step}"
    return NonFiniteError(
        f"in {steps} {seen if math.isfinite(loss) else f'the mean loss is {loss}'}; learning rate "
        f"{float(logs['learning_rate']):g}, precision {hp.precision}, clip_norm {hp.clip_norm:g}. All checkpoints are "
        "from earlier steps. Lower learning_rate, raise warmup_steps, set clip_norm to 1, set precision to bf16 or "
        "fp32, or check the data for invalid samples"
    )
