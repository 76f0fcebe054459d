"""Estimate of the steps, hours and cost of a fine-tuning, from its data and the size of its base model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware
from trainyard.catalog.instances import catalogue
from trainyard.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.script_conf import ScriptConf

FULL_FLOPS, ADAPTER_FLOPS = 6, 4
"""Operations per parameter and token: 2 for the forward pass, 2 for the gradients of activations, and 2 for the
gradients of weights. With an adapter the base's weights need no gradients, and the adapter's own weights are few."""
REFERENCE_FLOPS = 2
"""Operations per parameter and token of DPO's reference model, which has a forward pass only."""

EAGER_SHARE = 0.864
"""Relative speed without torch.compile, as measured for Llama 3 8B; see `EAGER_WIDTH` of trainyard/planning/compute.py.
The estimate does not know the width of the base model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneEstimate:
    """Expected length and cost of a training. Only matrix products count, not input, checkpoints or start-up.

    Attributes:
        num_steps: optimizer steps.
        num_tokens: tokens read in all steps.
        hours: training time; None if the type's speed or the model's size is unknown.
        cost_usd: cost on demand; None if `hours` or the price is unknown.
    """

    num_steps: int
    num_tokens: int
    hours: float | None
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-safe data."""
        return asdict(self)


def estimate_fine_tune(
    conf: ScriptConf, *, num_rows: int, num_tokens: int, num_parameters: float | None
) -> FineTuneEstimate:
    """Return the expected steps, hours and cost.

    Worked example: one epoch over 10,000 rows of 250 tokens, with batch 4 on one ml.g5.2xlarge, has 2,500 steps
    and 2.5 million tokens. With LoRA, each parameter needs 4 operations per token (`ADAPTER_FLOPS`). A model of
    7e9 parameters therefore needs 4 x 7e9 x 2.5e6 = 7e16 operations.

    Args:
        conf: the conf of the script's run.
        num_rows: rows of the training data.
        num_tokens: tokens of all these rows.
        num_parameters: parameters of the base model; None if unknown.
    """
    given = conf.hyperparameters
    tokens_per_row = min(num_tokens / max(1, num_rows), given["max_length"])
    rows, tokens_per_sequence = float(num_rows), tokens_per_row
    if given.get("packing"):
        rows, tokens_per_sequence = num_tokens / given["max_length"], float(given["max_length"])
    batch = conf.world_size * given["batch_size"] * given.get("gradient_accumulation_steps", 1)
    by_epochs = math.ceil(max(1.0, rows) * given["epochs"] / batch)
    num_steps = int(given.get("max_steps") or by_epochs)
    read = round(num_steps * batch * tokens_per_sequence)
    seconds = _seconds(conf, given, num_tokens=read, num_parameters=num_parameters)
    hours = None if seconds is None else seconds / SECONDS_PER_HOUR
    price = catalogue().find(conf.instance_type).price_usd_per_hour
    known = hours is not None and price is not None
    return FineTuneEstimate(
        num_steps=num_steps,
        num_tokens=read,
        hours=hours,
        cost_usd=hours * price * conf.instance_count if known else None,  # type: ignore[operator]  # known
    )


def _seconds(
    conf: ScriptConf, given: Mapping[str, Any], *, num_tokens: int, num_parameters: float | None
) -> float | None:
    """Return the seconds of the matrix products.

    None is returned if the speed of the instance type or the size of the model is unknown.
    """
    fast = hardware().get(conf.instance_type)
    if fast is None or num_parameters is None:
        return None
    flops = FULL_FLOPS if given["adapter"] == "none" else ADAPTER_FLOPS
    flops += REFERENCE_FLOPS if given["method"] == "dpo" else 0
    peak = (fast.bf16_tflops or fast.fp32_tflops) * 1e12
    rate = peak * fast.efficiency * EAGER_SHARE * conf.world_size
    return flops * num_parameters * num_tokens / rate
