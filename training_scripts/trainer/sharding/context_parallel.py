"""Context parallelism: ranks split a sample's sequence, and each gathers all keys and values.

Keys and values are gathered as in Llama 3 (Dubey et al. 2024, section 3.3.2). Each rank has one piece of the
sequence's first half and its mirror in the second half, so all ranks have equal work under a causal mask. torch's own
`context_parallel` (2.13) replaces CUDA's attention kernels only: on CPUs `_scaled_dot_product_flash_attention_for_cpu`
has no rule for a split sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TIME = 2  # of (batch, heads, time, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceShare:
    """Positions of this rank in a sequence that several ranks share.

    Attributes:
        mesh: mesh of the ranks that share the sequence.
        positions: this rank's positions, ascending, int64 on the CPU.
        mask: bool (own positions, gathered positions); true if the own position may attend to the gathered one.
    """

    mesh: DeviceMesh
    positions: Tensor
    mask: Tensor

    @classmethod
    def of(cls, mesh: DeviceMesh, sequence_length: int, device: torch.device) -> SequenceShare:
        """Return this rank's part of a sequence, whose length must be a multiple of two pieces per rank."""
        parts = split_positions(sequence_length, mesh.size())
        own, gathered = parts[mesh.get_local_rank()], torch.cat(parts)
        return cls(mesh=mesh, positions=own, mask=(own[:, None] >= gathered[None]).to(device))

    def of_batch(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return this rank's positions of tensors (batch, time)."""
        return tuple(part[:, self.positions.to(part.device)] for part in batch)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """Return the attention output of this rank's positions over the whole sequence."""
        return functional.scaled_dot_product_attention(
            query,
            self._gathered(key),
            self._gathered(value),
            attn_mask=self.mask,
            dropout_p=dropout,
        )

    def _gathered(self, heads: Tensor) -> Tensor:
        """Return all ranks' heads in rank order; the backward pass sums gradients and returns each rank's part."""
        split = DTensor.from_local(heads.contiguous(), self.mesh, [Shard(TIME)], run_check=False)
        return split.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def split_positions(sequence_length: int, num_ranks: int) -> list[Tensor]:
    """Return each rank's positions: rank r of n has the pieces r and 2n - 1 - r of 2n.

    Worked: 8 positions over 2 ranks: 0 1 6 7 and 2 3 4 5; under a causal mask 18 pairs each.
    """
    pieces = torch.arange(sequence_length).chunk(2 * num_ranks)
    return [torch.cat((pieces[rank], pieces[-1 - rank])) for rank in range(num_ranks)]
