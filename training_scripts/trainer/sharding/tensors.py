"""Norms and sums of sharded tensors over the stages of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainyard_watch.statistics.sharded_tensors import ShardedTensors

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainer.sharding.mesh import RankMesh


class StageTensors(ShardedTensors):
    """Sharded parameters of this rank's stage. Every rank must call `norms`, `total` and `added_up`."""

    def __init__(self, model: nn.Module, mesh: RankMesh, device: torch.device) -> None:
        num_ranks = mesh.whole.size() // mesh.degrees.pipeline
        super().__init__(model, device=device, num_ranks=num_ranks, group=mesh.stage_group)
        self._mesh = mesh

    @torch.no_grad()
    def total(self, norms: Tensor) -> Tensor:
        """Return the total norm of the gradients of all stages."""
        squares = norms.double().square().sum().to(self._device)
        if self._mesh.degrees.pipeline > 1:
            dist.all_reduce(squares, group=self._mesh.whole["pp"].get_group())
        return squares.sqrt().float()
