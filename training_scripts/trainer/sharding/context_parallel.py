"""Context parallelism: ranks split a sample's sequence, and each rank gathers all keys and values.

Keys and values are gathered as in Llama 3 (Dubey et al. 2024, section 3.3.2). Each rank has one piece of
the sequence's first half and its mirror in the second half, so all ranks have equal work. A piece attends
only to the keys up to its own end. On GPUs the flash kernel does this without a mask of shape (own
positions, sequence).

torch's own `context_parallel` (2.13) is not used, because it replaces only CUDA's attention kernels. On
CPUs, `_scaled_dot_product_flash_attention_for_cpu` has no rule for a split sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.attention.bias import causal_lower_right

from trainer.models.gpt import attend

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TIME = 2  # of (batch, heads, time, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceShare:
    """Positions of this rank in a sequence that several ranks share.

    Attributes:
        mesh: mesh of the ranks that share the sequence.
        positions: this rank's positions, ascending, int64 on the CPU; used only to build tables.
        biases: causal bias of each of this rank's pieces, of shape (positions of the piece,
            positions from the sequence's begin to the piece's end).
    """

    mesh: DeviceMesh
    positions: Tensor
    biases: tuple[Tensor, ...]

    @classmethod
    def of(cls, mesh: DeviceMesh, sequence_length: int, device: torch.device) -> SequenceShare:
        """Return this rank's part of a sequence; the length must be a multiple of twice the number of ranks."""
        rank, num_ranks = mesh.get_local_rank(), mesh.size()
        size = sequence_length // (2 * num_ranks)
        biases = [
            _causal_bias(size, (piece + 1) * size, device) for piece in own_pieces(rank, num_ranks)
        ]
        positions = own_part(torch.arange(sequence_length), rank, num_ranks, dim=0)
        return cls(mesh=mesh, positions=positions, biases=tuple(biases))

    def of_batch(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors of `batch` with this rank's positions only; each tensor has the shape (batch, time)."""
        rank, num_ranks = self.mesh.get_local_rank(), self.mesh.size()
        return tuple(own_part(part, rank, num_ranks, dim=1) for part in batch)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """Return the attention output of this rank's positions over the whole sequence."""
        rank, num_ranks = self.mesh.get_local_rank(), self.mesh.size()
        keys, values = (_in_order(self._gathered(each), num_ranks) for each in (key, value))
        attended = [
            attend(
                part,
                torch.cat(keys[: piece + 1], dim=TIME),
                torch.cat(values[: piece + 1], dim=TIME),
                attn_mask=bias,
                dropout_p=dropout,
            )
            for part, piece, bias in zip(
                query.chunk(2, dim=TIME), own_pieces(rank, num_ranks), self.biases, strict=True
            )
        ]
        return torch.cat(attended, dim=TIME)

    def _gathered(self, heads: Tensor) -> Tensor:
        """Return the keys or values `heads` of all ranks, joined along time in rank order.

        The backward pass sums the gradients over the ranks. Each rank gets the gradient of its own keys or values.
        """
        split = DTensor.from_local(heads.contiguous(), self.mesh, [Shard(TIME)], run_check=False)
        return split.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def own_pieces(rank: int, num_ranks: int) -> tuple[int, int]:
    """Return the indices of a rank's two pieces; the whole sequence has 2 * num_ranks pieces."""
    return rank, 2 * num_ranks - 1 - rank


def _in_order(gathered: Tensor, num_ranks: int) -> list[Tensor]:
    """Return the pieces of `gathered`, reordered from rank order to the order of the sequence."""
    pieces = gathered.chunk(2 * num_ranks, dim=TIME)
    return [*pieces[::2], *reversed(pieces[1::2])]


def _causal_bias(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return the causal bias for queries at a sequence's last `num_queries` positions.

    The keys are at all `num_keys` positions of the sequence. On a GPU the bias is an object without elements,
    with which torch calls the flash kernel. On a CPU it is the mask itself.
    """
    if device.type != "cpu":
        return causal_lower_right(num_queries, num_keys)
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


def own_part(whole: Tensor, rank: int, num_ranks: int, *, dim: int) -> Tensor:
    """Return a rank's part of `whole` along the dimension `dim`.

    For n ranks, `whole` is split into 2n pieces, and rank r has the pieces r and 2n - 1 - r. The two pieces are
    taken as slices and concatenated. An index tensor is not used, because it would be copied from the CPU to
    the GPU first, and the host would wait for the device.

    Example: 8 positions over 2 ranks are split into 0 1 6 7 and 2 3 4 5. Under a causal mask, each
    rank then has 18 pairs of query and key.
    """
    pieces = whole.chunk(2 * num_ranks, dim=dim)
    return torch.cat([pieces[each] for each in own_pieces(rank, num_ranks)], dim=dim)
