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

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_ROUNDS = 6
POSITIONS_AT_ONCE = 4096
MULTIPLIERS = (0x045D9F3B, 0x2C1B3C6D)


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


def epoch_keys(seed: int, epoch: int) -> list[int]:
    """Return the 32-bit round keys of one epoch, drawn by SHA-256 from (seed, epoch)."""
    digest = hashlib.sha256(f"trainyard sample order {seed} {epoch}".encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") for i in range(NUM_ROUNDS)]


def permute(positions: Tensor, size: int, keys: list[int]) -> Tensor:
    """Return the images of `positions` (int64, all below `size`) under the permutation of `keys`.

    The domain of the cipher is the smallest power of two that is at least `size` (and 4). An image of `size` or
    more is enciphered again until it is below `size`, on average fewer than two rounds.
    """
    bits = max(2, (size - 1).bit_length())
    images = _encipher(positions, bits, keys)
    outside = (images >= size).nonzero().squeeze(1)
    while len(outside):
        walked = _encipher(images[outside], bits, keys)
        images[outside] = walked
        outside = outside[walked >= size]
    return images


def _encipher(values: Tensor, bits: int, keys: list[int]) -> Tensor:
    """Return the images in [0, 2^bits) of an unbalanced Feistel network; halves swap widths."""
    low_bits = bits // 2
    high_bits = bits - low_bits
    for key in keys:
        low, high = values & ((1 << low_bits) - 1), values >> low_bits
        high = high ^ (_mix(low, key) & ((1 << high_bits) - 1))
        values = (low << high_bits) | high
        low_bits, high_bits = high_bits, low_bits
    return values


def _mix(values: Tensor, key: int) -> Tensor:
    """Return 32 well-mixed bits of (values, key); products stay below 2^63."""
    values = (values ^ key) & 0xFFFFFFFF
    for multiplier in MULTIPLIERS:
        values = ((values ^ (values >> 16)) * multiplier) & 0xFFFFFFFF
    return values ^ (values >> 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBatches:
    """Endless micro-batches of one rank, as int64 tensors of sample numbers.

    The first position is `start`, the number of samples already consumed. The ranks' parts of a step are disjoint and
    contiguous: in micro-step a, rank r takes the `micro_batch_size` positions that begin at
    (a * world_size + r) * micro_batch_size of the step.
    """

    order: SampleOrder
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
