"""Samples of a data mixture: several token data sets with fixed shares.

Position k of a training takes a sample of one source. A source's share is a number of parts, divided by
the sum of all sources' parts. The sources alternate: after the first n positions, for any n, the number of
samples taken from a source differs from n times its share by at most 1. This is the chairman assignment
problem. `Interleaving` solves it by Tijdeman's rule ("The chairman assignment problem", Discrete
Mathematics 32, 1980): of the sources that are due, the one with the earliest deadline is next.

The numbers of parts are whole numbers. The sequence of sources therefore repeats, and the length of one
cycle is the sum of all parts. For example, sources with 3 and 1 parts have a cycle of 4 positions. A table
of one cycle is enough to look up the source of any position, and the number of earlier positions with that
source.

Within a source, the samples are in the order that the source alone has with the same seed (`SampleOrder`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainer.data.sample_order import SampleOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSource:
    """Samples of one source, and its share as a number of parts of the mixture."""

    name: str
    parts: int
    samples: Dataset[Any]

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]  # every data set here has a length


class MixedSamples(Dataset[tuple[Tensor, ...]]):
    """Data set of all sources' samples, one source after the other, in the order of their names."""

    def __init__(self, sources: Sequence[MixtureSource]) -> None:
        self.sources = tuple(sorted(sources, key=lambda each: each.name))
        self.starts = torch.tensor([0, *map(len, self.sources)]).cumsum(0)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, samples: Tensor) -> tuple[Tensor, ...]:
        source_of = torch.searchsorted(self.starts, samples, right=True) - 1
        whole: tuple[Tensor, ...] = ()
        for number in source_of.unique().tolist():
            places = (source_of == number).nonzero().squeeze(1)
            found = self.sources[number].samples[samples[places] - self.starts[number]]
            whole = whole or tuple(part.new_empty(len(samples), *part.shape[1:]) for part in found)
            for target, part in zip(whole, found, strict=True):
                target[places] = part
        return whole

    def describe(self) -> str:
        """Return the sources as one word: name, parts and number of samples of each, such as `code:3:90,web:7:400`."""
        return ",".join(f"{each.name}:{each.parts}:{len(each)}" for each in self.sources)


class Interleaving:
    """Endless sequence of sources with fixed shares, given as numbers of parts.

    A source's share is its number of parts, divided by the sum of all parts. Of the first n positions, each
    source has between `n * share - 1` and `n * share + 1`.
    """

    def __init__(self, parts: tuple[int, ...]) -> None:
        if min(parts, default=0) < 1 or sum(parts) > MOST_PARTS:
            message = f"a mixture has 1 to {MOST_PARTS} parts in all, and 1 or more of each source, got {parts}"
            raise ValueError(message)
        cycle = interleaved(parts)
        seen = [0] * len(parts)
        ordinals = []
        for source in cycle:
            ordinals.append(seen[source])
            seen[source] += 1
        self._parts = torch.tensor(parts)
        self._source, self._ordinal = torch.tensor(cycle), torch.tensor(ordinals)

    def at(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the source and the ordinal (both int64) of each position in [start, stop).

        A position's ordinal is the number of earlier positions that have the same source.
        """
        positions = torch.arange(start, stop)
        length = len(self._source)
        place = positions % length
        source = self._source[place]
        before = self._parts[source] * (positions // length)
        return source, before + self._ordinal[place]


def interleaved(parts: Sequence[int]) -> list[int]:
    """Return one cycle of source numbers, in which source i occurs `parts[i]` times, by Tijdeman's rule.

    Each step chooses the source with the earliest deadline among those that are due. The symbols are:

    - p_i: share of source i, which is `parts[i]` / sum of `parts`;
    - x_i: number of earlier steps that chose source i;
    - d: 1 / (2m - 2) for m sources, and 1 for one source.

    Source i is due at step n (n = 1, 2, ...) if n * p_i - x_i >= d. Its deadline is the last step n with
    n * p_i - x_i <= 1 - d. Let y_i be the number of the first n steps that chose source i. Then n * p_i and
    y_i differ by at most 1 - d after each step n. The computation uses whole numbers only.
    """
    total, scale = sum(parts), max(1, 2 * len(parts) - 2)
    seen = [0] * len(parts)
    cycle = []
    for step in range(1, total + 1):
        due = (
            (((scale * (count + 1) - 1) * total) // (scale * part), source)
            for source, (part, count) in enumerate(zip(parts, seen, strict=True))
            if scale * (step * part - total * count) >= total
        )
        _, source = min(due)
        seen[source] += 1
        cycle.append(source)
    return cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOrder:
    """Endless sequence of the sample numbers of `MixedSamples` for one seed.

    Attributes:
        sizes: number of samples of each source.
        interleaving: the source of each position.
    """

    sizes: tuple[int, ...]
    seed: int
    interleaving: Interleaving

    @property
    def num_samples(self) -> int:
        """Return the number of samples of all sources."""
        return sum(self.sizes)

    def samples(self, start: int, stop: int) -> Tensor:
        """Return the sample numbers (int64) at the positions [start, stop)."""
        source_of, ordinal = self.interleaving.at(start, stop)
        samples = torch.empty_like(ordinal)
        offset = 0
        for source, size in enumerate(self.sizes):
            places = (source_of == source).nonzero().squeeze(1)
            if len(places):
                first, last = int(ordinal[places[0]]), int(ordinal[places[-1]])
                order = SampleOrder(num_samples=size, seed=self.seed)
                samples[places] = order.samples(first, last + 1) + offset
            offset += size
        return samples


def order_of(samples: Dataset[Any], *, seed: int) -> SampleOrder | MixtureOrder:
    """Return the order of a training on these samples."""
    if not isinstance(samples, MixedSamples):
        return SampleOrder(num_samples=len(samples), seed=seed)  # type: ignore[arg-type]  # it has a length
    return MixtureOrder(
        sizes=tuple(len(each) for each in samples.sources),
        seed=seed,
        interleaving=Interleaving(tuple(each.parts for each in samples.sources)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedPart:
    """Samples that are evaluated together: a source of a mixture, or a whole split under an empty name.

    Attributes:
        share: weight of these samples' loss in the split's loss.
        num_samples: number of samples to evaluate. They are spread evenly over the data set `samples`.
    """

    name: str
    share: float
    samples: Dataset[Any]
    num_samples: int


def evaluated_parts(samples: Dataset[Any], most: int) -> list[EvaluatedPart]:
    """Return the groups of samples to evaluate, with about `most` samples in all; 0 evaluates every sample.

    `samples` is the data set of one split. A mixture has one group per source, with a number of samples in
    proportion to the source's share. Any other data set is one group.
    """
    total = len(samples)  # type: ignore[arg-type]  # every data set here has a length
    if not isinstance(samples, MixedSamples):
        number = min(most or total, total)
        return [EvaluatedPart(name="", share=1.0, samples=samples, num_samples=number)]
    whole = sum(each.parts for each in samples.sources)
    return [
        EvaluatedPart(
            name=each.name,
            share=each.parts / whole,
            samples=each.samples,
            num_samples=min(math.ceil(most * each.parts / whole) or len(each), len(each)),
        )
        for each in samples.sources
    ]
