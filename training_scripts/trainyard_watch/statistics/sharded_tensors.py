"""Norms and sums of sharded tensors, over the shards of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainyard_watch.statistics.tensors import ModelTensors

if TYPE_CHECKING:
    from collections.abc import Sequence

TINY = 1e-6  # as in torch's clip_grad_norm_


class ShardedTensors(ModelTensors):
    """Trainable parameters of a model that is sharded over a group of ranks.

    Every rank of the group must call `norms` and `added_up`. Every rank of `stages` must call `total`.

    Args:
        model: model whose parameters are each a DTensor on a mesh of the whole group, or a tensor that is the
            same on all ranks of the group.
        device: device of the group's collectives.
        num_ranks: number of ranks of the group.
        group: the group; None for all ranks.
        stages: process group with one rank per pipeline stage, over which `total` sums; None without a
            pipeline.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        num_ranks: int,
        group: dist.ProcessGroup | None = None,
        stages: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(model)
        self._device, self._group, self._stages = device, group, stages
        self._share = {
            place: _num_pieces(each) / num_ranks for place, each in enumerate(self.parameters)
        }
        self._places: list[int] = []

    def gradients(self) -> tuple[list[int], list[Tensor]]:
        """Return the indices of the parameters that have a gradient, and these gradients."""
        self._places, gradients = super().gradients()
        return self._places, gradients

    @torch.no_grad()
    def norms(self, tensors: Sequence[Tensor], order: float = 2.0) -> Tensor:
        """Return the norm of each whole tensor, as float32 of shape (number of tensors,).

        `tensors` has one tensor per parameter, or one per gradient of the last call of `gradients`.
        """
        if not tensors:
            return torch.zeros(0)
        own = super().norms([self.local(each) for each in tensors], order).double() ** order
        return self.added_up(own).pow(1 / order).float()

    @torch.no_grad()
    def total(self, norms: Tensor) -> Tensor:
        """Return the gradients' total norm over all pipeline stages, from this stage's `norms`."""
        squares = norms.double().square().sum().to(self._device)
        if self._stages is not None:
            dist.all_reduce(squares, group=self._stages)
        return squares.sqrt().float()

    @torch.no_grad()
    def clip(self, limit: float, total: Tensor) -> None:
        """Scale the gradients down so that their norm `total` is at most `limit`, as `clip_grad_norm_` does."""
        factor = (limit / (total + TINY)).clamp(max=1.0)
        own = [self.local(each) for each in super().gradients()[1]]
        if own:
            torch._foreach_mul_(own, factor.to(own[0].device))

    def local(self, tensor: Tensor) -> Tensor:
        """Return this rank's shard of a tensor, or the tensor if it is not sharded; detached."""
        return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()

    def added_up(self, sums: Tensor) -> Tensor:
        """Add up sums over all ranks of the group, tensor by tensor.

        `sums` has one sum per tensor, over this rank's shard of that tensor, in the shape (..., number of tensors).
        The result has the same shape. Its sums are over the whole tensors.
        """
        places = range(len(self.parameters))
        if sums.shape[-1] != len(self.parameters):
            places = self._places
        shares = torch.tensor([self._share[place] for place in places], dtype=sums.dtype)
        total = (sums * shares.to(sums.device)).to(self._device)
        dist.all_reduce(total, group=self._group)
        return total


def can_measure(model: nn.Module, num_ranks: int) -> bool:
    """Return whether `ShardedTensors` can measure the model over all ranks.

    It can if each DTensor among the parameters is on a mesh of all ranks.
    """
    sharded = [each for each in model.parameters() if isinstance(each, DTensor)]
    return all(each.device_mesh.size() == num_ranks for each in sharded)


def _num_pieces(parameter: Tensor) -> int:
    """Return the number of different shards of a parameter; further ranks of the group have copies of them."""
    if not isinstance(parameter, DTensor):
        return 1
    sizes = zip(parameter.placements, parameter.device_mesh.shape, strict=True)
    pieces = 1
    for placement, size in sizes:
        pieces *= 1 if placement.is_replicate() else size
    return pieces
