"""Samples of a mixture at given positions, written from the description of its order.

A `start` line describes a mixture by its sources in the order of their names: `mixture=code:3:90,web:7:400` has three
parts of ten from 90 samples of `code`, then seven of ten from 400 of `web`. The samples of all sources are numbered
one source after the other.

Which source is next (Tijdeman 1980, "The chairman assignment problem"): with m sources, let lag be a source's share of
the positions up to the next one, less the number of its samples so far. Of the sources with a lag of at least
1 / (2m - 2), it is the one whose lag would reach 1 - 1 / (2m - 2) first, in whole positions; of several, the first.
Each source is read in the order that it has alone.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from verify.sample_order import digest_of_samples, samples_at

if TYPE_CHECKING:
    from collections.abc import Iterator


def digest_of_mixture(first: int, end: int, *, mixture: str, seed: int) -> int:
    """Return the digest of the samples at the positions [first, end)."""
    sources = [word.split(":") for word in mixture.split(",")]
    parts = [int(each[1]) for each in sources]
    sizes = [int(each[2]) for each in sources]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    cycle = list(sources_of_a_cycle(parts))
    counts = [first // len(cycle) * part for part in parts]
    for source in cycle[: first % len(cycle)]:
        counts[source] += 1
    samples = []
    for position in range(first, end):
        source = cycle[position % len(cycle)]
        (sample,) = samples_at(
            counts[source], counts[source] + 1, num_samples=sizes[source], seed=seed
        )
        samples.append(starts[source] + sample)
        counts[source] += 1
    return digest_of_samples(np.array(samples, dtype=np.uint64))


def sources_of_a_cycle(parts: list[int]) -> Iterator[int]:
    """Yield the sources of the positions of one cycle; the next cycle is the same."""
    shares = [Fraction(part, sum(parts)) for part in parts]
    least = Fraction(1, 2 * len(parts) - 2)
    taken = [0] * len(parts)
    for position in range(1, sum(parts) + 1):
        lags = [share * position - count for share, count in zip(shares, taken, strict=True)]
        waits = {
            source: floor((1 - least - lag) / shares[source])
            for source, lag in enumerate(lags)
            if lag >= least
        }
        chosen = min(waits, key=lambda source: (waits[source], source))
        taken[chosen] += 1
        yield chosen
