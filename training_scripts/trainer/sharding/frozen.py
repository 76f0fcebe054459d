"""Sharded inference of a trained model over the ranks of one instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainer.models.gpt import GPT

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainyard_watch.distributed import Ranks


def shard_frozen(model: nn.Module, ranks: Ranks, *, dtype: torch.dtype) -> nn.Module:
    """Return the model in shards of `dtype`; all ranks must run it equally often.

    As in an FSDP training of the same precision, parameters are in `dtype`, norms in float32. The layers are cast and
    sharded one by one, so a rank has at most one whole layer in memory beside its shards.
    """
    mesh = init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("dp_shard",))
    for layer in model.blocks if isinstance(model, GPT) else ():
        fully_shard(_cast(layer, dtype), mesh=mesh)
    return fully_shard(_cast(model, dtype), mesh=mesh)


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Freeze all parameters, and cast those that are not sharded yet; buffers keep their dtype."""
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad=False)
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.to(dtype)
    return module
