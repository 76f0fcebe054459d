"""State of models and optimizers as this rank's shards, for torch.distributed.checkpoint.

The names of the tensors do not depend on the number of ranks or on the kind of parallelism (DDP, FSDP,
tensor parallelism). A state can therefore be restored with another number of ranks or another kind of
parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from trainyard_watch.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_watch.checkpoint_folder import Checkpoint
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.tensor_tree import CpuBuffers

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
Part = nn.Module | torch.optim.Optimizer
Shards = dict[str, dict[str, Any]]


def shards_of(parts: Mapping[str, Part]) -> Shards:
    """Return this rank's shards of each part (model or optimizer), by the global names of the tensors.

    The tensors are not copied. If an optimizer has taken no step, a step with learning rate 0 creates its
    state.

    Raises:
        CheckpointError: the model of an optimizer is not among the parts.
    """
    return {
        name: get_model_state_dict(part, options=OPTIONS)
        if isinstance(part, nn.Module)
        else get_optimizer_state_dict(_model_of(part, parts), part, options=OPTIONS)
        for name, part in parts.items()
    }


def restore_shards(parts: Mapping[str, Part], shards: Mapping[str, Any]) -> None:
    """Restore the result of `shards_of` into the parts.

    Raises:
        CheckpointError: the model of an optimizer is not among the parts.
    """
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            set_model_state_dict(part, shards[name], options=OPTIONS)
        else:
            set_optimizer_state_dict(_model_of(part, parts), part, shards[name], options=OPTIONS)


def load_shards(found: Checkpoint, shards: Shards, *, alone: bool) -> Shards:
    """Load a checkpoint into the shards and return them. Every rank must call it.

    Each rank reads the pieces of its own shards, from the files of any rank.

    Args:
        found: the checkpoint.
        shards: result of `shards_of`, whose tensors are overwritten.
        alone: whether there is only one rank.

    Raises:
        CheckpointError: a shard is missing or cannot be read, on any rank.
    """
    try:
        dcp.load(shards, storage_reader=dcp.FileSystemReader(found.path), no_dist=alone)
    except (CheckpointException, RuntimeError, ValueError, OSError) as error:
        message = (
            f"{found.path} cannot be loaded although its checksums are correct ({error}): resume with the model, the "
            "optimizer and the version of torch that wrote it, or set a new checkpoint_s3_uri to begin at step 0"
        )
        raise CheckpointError(message) from error
    return shards


def resume_parts(found: Checkpoint, parts: Mapping[str, Part], ranks: Ranks) -> None:
    """Restore a checkpoint into `parts`, which must match the models and optimizers that were saved in it.

    Every rank must call it. The number of ranks may have changed since the checkpoint was saved.

    Raises:
        CheckpointError: the checkpoint cannot be read, has values that the parts lack, or lacks values of the
            parts.
    """
    shards = shards_of(parts)
    own = [f"{kind}.{name}" for kind, group in shards.items() for name in group]
    with ranks.all_or_none():
        saved = set(dcp.FileSystemReader(found.path).read_metadata().state_dict_metadata)
        if surplus := sorted(saved.difference(*ranks.gather(own))):
            message = (
                f"{found.path} has {len(surplus)} values that the given parts do not have, such as {surplus[0]}: "
                "resume with the same model and optimizer, or set a new checkpoint_s3_uri to begin at step 0"
            )
            raise CheckpointError(message)
    restore_shards(parts, load_shards(found, shards, alone=ranks.world_size == 1))


def copied_shards(shards: Shards, buffers: CpuBuffers) -> Shards:
    """Return copies of the shards on the CPU, valid until the buffers are used again."""
    flat = {
        (kind, name): each
        for kind, group in shards.items()
        for name, each in group.items()
        if isinstance(each, Tensor)
    }
    own = [_local_tensors(each) for each in flat.values()]
    copies = dict(zip(flat, buffers.copy(own), strict=True))
    return {
        kind: {
            name: _like(each, copies[kind, name]) if isinstance(each, Tensor) else each
            for name, each in group.items()
        }
        for kind, group in shards.items()
    }


def _model_of(optimizer: torch.optim.Optimizer, parts: Mapping[str, Part]) -> nn.Module:
    """Return the model whose parameters the optimizer updates; it is one of the parts.

    Raises:
        CheckpointError: none of the parts is such a model.
    """
    updated = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for part in parts.values():
        if isinstance(part, nn.Module) and any(id(each) in updated for each in part.parameters()):
            return part
    message = (
        f"the checkpoint has a {type(optimizer).__name__} without the model that it updates: pass the model, too, for "
        'example run.checkpoint({"model": model, "optimizer": optimizer})'
    )
    raise CheckpointError(message)


def _local_tensors(tensor: Tensor) -> list[Tensor]:
    """Return this rank's part of a tensor; FSDP1's type of sharded tensors can have several parts."""
    if isinstance(tensor, DTensor):
        return [tensor.to_local()]
    if isinstance(tensor, ShardedTensor):
        return [each.tensor for each in tensor.local_shards()]
    return [tensor]


def _like(tensor: Tensor, copies: list[Tensor]) -> Tensor:
    """Return a tensor with the type and placement of `tensor`, in which `copies` are this rank's part.

    A DTensor is not made by `DTensor.from_local`, because that would move the copy to the mesh's GPU.
    """
    if isinstance(tensor, DTensor):
        return DTensor(copies[0], tensor._spec, requires_grad=False)  # noqa: SLF001 as FSDP2 makes its own
    if isinstance(tensor, ShardedTensor):
        shards = [
            Shard(copy, shard.metadata)
            for copy, shard in zip(copies, tensor.local_shards(), strict=True)
        ]
        return ShardedTensor._init_from_local_shards_and_global_metadata(  # noqa: SLF001 as FSDP1 makes its own
            shards,
            tensor.metadata(),
            process_group=tensor._process_group,  # noqa: SLF001
        )
    return copies[0]
