"""FSDP2 of a fine-tuning: settings for accelerate, and the weights of a sharded model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy

from sft.errors import FineTuningError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sft.options import Options


def use_fsdp(options: Options, *, is_bf16: bool) -> None:
    """Configure accelerate so that this process's trainer shards its model with FSDP2.

    Call this function after the process group is made, and before the model is made.

    The trainer takes the settings from accelerate's state of the process. The trainer's own arguments for FSDP
    are not used, because they differ between versions of transformers. If the run computes in bf16, the
    gradients are still reduced in float32, and the loss is returned in float32. accelerate's default for both
    is bf16.

    Normally only the first rank of each host reads the model's weights, and rank 0 then sends each rank its
    shards. In two cases every rank reads the weights:

    - The weights are quantized.
    - The method is DPO without an adapter. TRL 1.16 sends no shards of the reference model.

    Raises:
        FineTuningError: torchrun did not start the process.
    """
    if not torch.distributed.is_initialized():
        raise FineTuningError(
            "strategy is 'fsdp', but the process has no ranks; start it with torchrun, or set strategy to 'ddp'"
        )
    has_reference = options.method == "dpo" and not options.has_adapter
    precise = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        state_dict_type="SHARDED_STATE_DICT",
        # accelerate 1.15 recomputes layers with other dropout masks (fsdp2_apply_ac); the trainer does not.
        activation_checkpointing=False,
        cpu_ram_efficient_loading=not has_reference and options.adapter != "qlora",
        mixed_precision_policy=precise if is_bf16 else None,
    )
    os.environ["FSDP_VERSION"] = "2"  # for the plugin that each Accelerator makes, here unused
    state = Accelerator(
        cpu=not torch.cuda.is_available(),
        mixed_precision="bf16" if is_bf16 else "no",
        fsdp_plugin=plugin,
    ).state
    if not torch.cuda.is_available():
        # accelerate 1.15 selects FSDP on accelerators only; see AcceleratorState.__init__.
        PartialState().distributed_type = state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = plugin


def gathered_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained weights of a sharded model on the CPU; empty except on rank 0. Every rank must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    return get_model_state_dict(model, options=options)
