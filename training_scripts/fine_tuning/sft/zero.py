"""DeepSpeed's ZeRO of a fine-tuning: its settings for transformers, and the weights of a sharded model."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from sft.errors import FineTuningError
from sft.options import OF_THE_RUN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from sft.options import Options

_SHARED_MEMORY_COLLECTIVES = "deepspeed_shm_comm"


def zero_arguments(options: Options) -> dict[str, Any]:
    """Return the arguments of transformers' trainer for ZeRO.

    On CPUs, the call also creates the process group, because the trainer creates it on accelerators only.

    Raises:
        FineTuningError: torchrun did not start the process.
    """
    if "LOCAL_RANK" not in os.environ:
        raise FineTuningError(
            "strategy is 'deepspeed', but the process has no ranks; start it with torchrun, or set strategy to 'ddp'"
        )
    import deepspeed  # noqa: PLC0415  # seconds, and only environments of this strategy have it

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # This extension is compiled at each start of a container, and only used if all ranks are on one host. gloo works
    # as well.
    deepspeed.ops.__compatible_ops__[_SHARED_MEMORY_COLLECTIVES] = False
    arguments: dict[str, Any] = {"deepspeed": _complete(options.zero_config)}
    if torch.cuda.is_available():
        return arguments
    # transformers 5.23 makes ranks for DeepSpeed on accelerators only, but takes those that accelerate made.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo")
    return arguments | {"accelerator_config": {"use_configured_state": True}}


def _complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the trainer's batch sizes and gradient clipping.

    The optimizer remains torch's AdamW, even if DeepSpeed offloads its state to the CPU.
    """
    zero = {"stage3_gather_16bit_weights_on_model_save": True, **config["zero_optimization"]}
    return {
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 31,
        **config,
        "zero_optimization": zero,
        **dict.fromkeys(OF_THE_RUN, "auto"),
    }


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained weights in float32 on the CPU; empty except on rank 0. Every rank must call it.

    The weights are gathered one by one. Afterwards, transformers no longer shards the models that it loads.
    """
    from deepspeed.utils import safe_get_full_fp32_param  # noqa: PLC0415  # as above

    weights = {}
    for name, each in model.named_parameters():
        if each.requires_grad:
            whole = safe_get_full_fp32_param(each)
            if torch.distributed.get_rank() == 0:
                weights[name] = whole.to("cpu", copy=True)
    unset_hf_deepspeed_config()
    return weights
