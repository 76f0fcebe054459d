"""Sample order of a run: a pure function of (seed, epoch, position).

A keyed permutation (a Feistel network with cycle walking; Black and Rogaway 2002, "Ciphers with
arbitrary finite domains", section 3) maps position -> sample. Advantages over `torch.randperm`:

- It needs no memory. randperm needs 8 bytes per sample and rank, 8 GB for 10^9 samples.
- A resume computes any position directly.
- Loader processes share no state.

The order is well mixed, but not cryptographic. It does not depend on the number of ranks. Step k with a global batch
of B takes the positions from k * B to (k + 1) * B - 1 of the endless sequence epoch 0, epoch 1, ...; each epoch has
each sample once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from trainer.data.permutation import epoch_keys, permute

if TYPE_CHECKING:
    from collections.abc import Iterator

POSITIONS_AT_ONCE = 4096


class Order(Protocol):
    """Endless sequence of sample numbers."""

    @property
    def num_samples(self) -> int:
        """Return the number of samples of one epoch."""

    def samples(self, start: int, stop: int) -> Tensor:
        """Return the sample numbers (int64) at the positions [start, stop)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOrder:
    """The endless sequence of sample numbers in [0, num_samples) for one seed."""

    num_samples: int
    seed: int

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ValueError(f"an order needs at least one sample, got {self.num_samples}")

    def samples(self, start: int, stop: int) -> Tensor:
        """Return the sample numbers (int64) at the positions [start, stop)."""
        parts = []
        while start < stop:
            epoch, first = divmod(start, self.num_samples)
            last = min(self.num_samples, first + stop - start)
            parts.append(
                permute(torch.arange(first, last), self.num_samples, epoch_keys(self.seed, epoch))
            )
            start += last - first
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBatches:
    """Endless micro-batches of one rank, as int64 tensors of sample numbers.

    The first position is `start`, the number of samples already consumed. In each micro-step, the ranks take
    adjacent blocks of `micro_batch_size` positions, in the order of the ranks. In the micro-step with number m,
    the block of rank r begins (m * world_size + r) * micro_batch_size positions after the first position of the
    optimizer step. Micro-steps within a step, and ranks, are counted from 0.
    """

    order: Order
    start: int
    global_batch_size: int
    micro_batch_size: int
    rank: int
    world_size: int

    def __iter__(self) -> Iterator[Tensor]:
        stride = self.world_size * self.micro_batch_size
        ahead = min(POSITIONS_AT_ONCE, self.order.num_samples)
        steps_at_once = max(1, ahead // self.global_batch_size)
        position = self.start
        while True:
            span = steps_at_once * self.global_batch_size
            samples = self.order.samples(position, position + span).view(-1, stride)
            first = self.rank * self.micro_batch_size
            yield from samples[:, first : first + self.micro_batch_size]
            position += span
