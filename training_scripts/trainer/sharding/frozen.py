"""A trained model spread over the ranks of one instance, to be run and not to be trained."""

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
    """Return the model in shards of `dtype`, one layer after the other; every rank has to run it equally often.

    The arithmetic is that of a training by FSDP in the same precision: parameters in `dtype`, norms in float32. Beside
    its shards a rank holds one whole layer at a time, while it is cast and cut.
    """
    mesh = init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("dp_shard",))
    for layer in model.blocks if isinstance(model, GPT) else ():
        fully_shard(_cast(layer, dtype), mesh=mesh)
    return fully_shard(_cast(model, dtype), mesh=mesh)


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Cast the parameters that are not in shards yet; tables of positions stay as they are."""
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad=False)
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.to(dtype)
    return module
