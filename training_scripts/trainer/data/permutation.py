"""Keyed permutation of the sample order, for torch tensors and numpy arrays of int64 alike. Standard library only."""

from __future__ import annotations

import hashlib
from typing import Any

NUM_ROUNDS = 6
MULTIPLIERS = (0x045D9F3B, 0x2C1B3C6D)


def epoch_keys(seed: int, epoch: int) -> list[int]:
    """Return the 32-bit round keys of one epoch, drawn by SHA-256 from (seed, epoch)."""
    digest = hashlib.sha256(f"trainyard sample order {seed} {epoch}".encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") for i in range(NUM_ROUNDS)]


def permute(positions: Any, size: int, keys: list[int]) -> Any:
    """Return the images of `positions` (int64, all below `size`) under the permutation that `keys` define.

    `encipher` permutes the integers below a power of two, which can be larger than `size`. A result of `size`
    or more is therefore enciphered again until it is below `size`. If `size` is above 2, a position is
    enciphered fewer than 2 times on average.
    """
    bits = domain_bits(size)
    images = encipher(positions, bits, keys)
    while (is_outside := images >= size).any():
        images[is_outside] = encipher(images[is_outside], bits, keys)
    return images


def domain_bits(size: int) -> int:
    """Return b, the number of bits of the values that `encipher` permutes.

    2^b is the smallest power of two >= max(size, 4).
    """
    return max(2, (size - 1).bit_length())


def encipher(values: Any, bits: int, keys: list[int]) -> Any:
    """Permute `values`, which are in [0, 2^bits), by an unbalanced Feistel network; return the new values.

    The network maps this range one-to-one onto itself. It has one round per key. The two halves of a value swap
    their widths after each round.
    """
    low_bits = bits // 2
    high_bits = bits - low_bits
    for key in keys:
        low, high = values & ((1 << low_bits) - 1), values >> low_bits
        high = high ^ (_mix(low, key) & ((1 << high_bits) - 1))
        values = (low << high_bits) | high
        low_bits, high_bits = high_bits, low_bits
    return values


def _mix(values: Any, key: int) -> Any:
    """Return 32 bits for each element of `values`, mixed from the element and `key`.

    The intermediate products stay below 2^63, so int64 does not overflow.
    """
    values = (values ^ key) & 0xFFFFFFFF
    for multiplier in MULTIPLIERS:
        values = ((values ^ (values >> 16)) * multiplier) & 0xFFFFFFFF
    return values ^ (values >> 16)
