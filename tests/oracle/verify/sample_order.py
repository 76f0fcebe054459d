"""Samples at given positions of a run's order, and their digest, written from the description of the order.

The order (Black and Rogaway 2002, "Ciphers with arbitrary finite domains", section 3, cycle walking): epoch e holds the
positions [e * n, (e + 1) * n). Its six 32-bit round keys are the first 24 bytes, little-endian, of SHA-256("trainyard
sample order <seed> <e>"). A position in the epoch is enciphered in b bits until the result is below n; b is the number
of bits of n - 1, at least 2. One round, on a low half of b // 2 bits and a high half of the rest: the high half is
XORed with mix(low, key), cut to its width, and becomes the low one, while the low half becomes the high one; so the
halves' widths swap each round. mix takes the low 32 bits of low ^ key, twice multiplies x ^ (x >> 16), by 0x045D9F3B
and 0x2C1B3C6D, modulo 2^32, and ends with x ^ (x >> 16).

The digest of some samples is the sum modulo 2^64 of splitmix64's finalizer of (sample + 1).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_ROUNDS = 6
_AT_ONCE = 1 << 20


def digest_of_positions(first: int, end: int, *, num_samples: int, seed: int) -> int:
    """Return the digest of the samples at the positions [first, end).

    Worked example: the sample 0 alone, of an order of one sample, has the digest 0x5692161D100B05E5.
    """
    total = 0
    while first < end:
        epoch, place = divmod(first, num_samples)
        count = min(end - first, num_samples - place, _AT_ONCE)
        places = np.arange(place, place + count, dtype=np.uint64)
        total += digest_of_samples(_walked(places, num_samples, _round_keys(seed, epoch)))
        first += count
    return total % 2**64


def digest_of_samples(samples: Words) -> int:
    """Return the digest of these samples."""
    return int(_finalized(samples + np.uint64(1)).sum(dtype=np.uint64))


def samples_at(first: int, end: int, *, num_samples: int, seed: int) -> list[int]:
    """Return the samples at the positions [first, end), which must be in one epoch."""
    epoch, place = divmod(first, num_samples)
    places = np.arange(place, place + end - first, dtype=np.uint64)
    return [int(each) for each in _walked(places, num_samples, _round_keys(seed, epoch))]


def _round_keys(seed: int, epoch: int) -> list[int]:
    material = hashlib.sha256(f"trainyard sample order {seed} {epoch}".encode()).digest()
    return [int(key) for key in np.frombuffer(material, dtype="<u4")[:_ROUNDS]]


def _walked(places: Words, num_samples: int, keys: list[int]) -> Words:
    bits = max(2, (num_samples - 1).bit_length())
    result = places.copy()
    pending = np.arange(len(places))
    while len(pending):
        result[pending] = _enciphered(result[pending], bits, keys)
        pending = pending[result[pending] >= num_samples]
    return result


def _enciphered(values: Words, bits: int, keys: list[int]) -> Words:
    low_width, high_width = bits // 2, bits - bits // 2
    low, high = values & _ones(low_width), values >> np.uint64(low_width)
    for key in keys:
        low, high = high ^ (_mixed(low, key) & _ones(high_width)), low
        low_width, high_width = high_width, low_width
    return (high << np.uint64(low_width)) | low


def _mixed(values: Words, key: int) -> Words:
    x = (values ^ np.uint64(key)) & _ones(32)
    for factor in (0x045D9F3B, 0x2C1B3C6D):
        x = ((x ^ (x >> np.uint64(16))) * np.uint64(factor)) & _ones(32)
    return x ^ (x >> np.uint64(16))


def _finalized(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _ones(width: int) -> np.uint64:
    return np.uint64((1 << width) - 1)
