"""Digest of the consumed samples, independent of their order: the digests of ranks and steps add up.

The digest of sample ids is the sum of `mix64(id + 1)` modulo 2^64; a sample that is consumed
twice counts twice. `mix64` is the finalizer of splitmix64 (Steele, Lea and Flood 2014, "Fast
splittable pseudorandom number generators", with the constants of Stafford's variant 13).

Example: sample 0 has the digest 5692161d100b05e5, samples 0 and 1 together 32644eb44a361a6f.
"""

from __future__ import annotations

import torch
from torch import Tensor

MASK = (1 << 64) - 1
LIMB_BITS = 32
MULTIPLIERS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))  # as int64


def digest_of(samples: Tensor) -> int:
    """Return the digest in [0, 2^64) of sample ids (int64, any shape)."""
    return int(mix64(samples + 1).sum()) & MASK


def mix64(values: Tensor) -> Tensor:
    """Return `mix64` of each value. The values are uint64 numbers, stored as int64; arithmetic is modulo 2^64."""
    values = (values ^ _shifted(values, 30)) * MULTIPLIERS[0]
    values = (values ^ _shifted(values, 27)) * MULTIPLIERS[1]
    return values ^ _shifted(values, 31)


def to_limbs(digest: int) -> list[float]:
    """Return [low, high], the two 32-bit halves of the digest as floats.

    A float64 sum of such halves is exact for up to 2^21 ranks.
    """
    return [float(digest & ((1 << LIMB_BITS) - 1)), float(digest >> LIMB_BITS)]


def from_limbs(low: float, high: float) -> int:
    """Return the sum of one or more digests, from the sums of their low and high halves (`to_limbs`)."""
    return (int(low) + (int(high) << LIMB_BITS)) & MASK


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Return `values` shifted to the right, filled with zeros (a logical shift)."""
    return (values >> bits) & torch.iinfo(torch.int64).max >> (bits - 1)
