"""This rank's parts of a model's gradients under FSDP, FSDP2, DDP and tensor parallelism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientPart:
    """One part of a parameter's gradient. `num_parts` parts make up the whole; other ranks may hold copies."""

    values: Tensor
    num_parts: int


def gradient_parts(model: nn.Module) -> list[GradientPart]:
    """Return this rank's part of each gradient, without FSDP's padding.

    In each result, `num_parts` is the number of parts that make up the whole gradient. The number comes from
    the module or tensor that was sharded:

    - FSDP module: from its strategy and process group. It is 1 for NO_SHARD. For HYBRID_SHARD it is the size of
      the group that shards one copy of the model.
    - DTensor: from the tensor's placements.
    - DTensor that FSDP has flattened: the number for the FSDP module times the number for the DTensor.
    """
    flattened = dict(_flattened(model))
    return [
        part
        for parameter in model.parameters()
        if parameter.grad is not None
        for part in _parts(parameter.grad, flattened.get(id(parameter)))
        if part.values.numel()
    ]


def local(tensor: Tensor) -> Tensor:
    """Return the local tensor of a DTensor, or the tensor itself. Changes apply to the original."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _flattened(model: nn.Module) -> Iterator[tuple[int, tuple[Any, int | None]]]:
    """Yield (id of a tensor, (FSDP's handle, index)) for each flat parameter and for its original parameters.

    The index of an original parameter is its position in the flat parameter. For the flat parameter itself,
    the index is None.
    """
    for module in FullyShardedDataParallel.fsdp_modules(model):
        handle = module._handle
        if handle is None:
            continue
        yield id(handle.flat_param), (handle, None)
        for place, parameter in enumerate(handle.flat_param._params or ()):
            yield id(parameter), (handle, place)


def _parts(gradient: Tensor, flattened: tuple[Any, int | None] | None) -> Iterator[GradientPart]:
    if isinstance(gradient, DTensor):
        whole = [Replicate() if each.is_partial() else each for each in gradient.placements]
        yield GradientPart(
            values=gradient.redistribute(placements=whole).to_local(),
            num_parts=_num_parts(gradient.device_mesh, whole),
        )
    elif flattened is None:
        yield GradientPart(values=gradient, num_parts=1)
    else:
        yield from _parts_of_flat(gradient, *flattened)


def _parts_of_flat(gradient: Tensor, handle: Any, place: int | None) -> Iterator[GradientPart]:
    """Yield the gradient part of each original parameter in this rank's shard of the flat parameter.

    If `place` is not None, it is the index of one original parameter. `gradient` is then the part of this
    parameter, and only this part is yielded.
    """
    num_shards = handle.process_group.size() if handle.uses_sharded_strategy else 1
    splits = [
        1 if spec is None else _num_parts(spec.mesh, spec.placements)
        for spec in handle.flat_param._param_extensions
    ]
    if place is not None:
        yield GradientPart(values=gradient, num_parts=num_shards * splits[place])
        return
    for split, shard in zip(splits, handle.flat_param._shard_param_infos, strict=True):
        if shard.in_shard:
            end = shard.offset_in_shard + shard.numel_in_shard
            values = gradient[shard.offset_in_shard : end]
            yield GradientPart(values=values, num_parts=num_shards * split)


def _num_parts(mesh: Any, placements: Any) -> int:
    """Return the number of different parts of a sharded tensor.

    It is the product of the sizes of the mesh axes on which the tensor is not replicated.
    `Placement.is_shard` is not used: it is False for FSDP2's strided shards.
    """
    axes = (axis for axis, placement in enumerate(placements) if not placement.is_replicate())
    return math.prod(mesh.size(axis) for axis in axes)
