"""Memory use of a training, and its growth."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from trainyard.runs.profile.usage import by_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.rules.records import Record

_LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """The memory of one host's training processes, or of one of its GPUs, in bytes.

    Attributes:
        place: `algo-1`, `algo-1 gpu 0`.
        early, late: means of the second and of the last quarter of the samples; None if there are too few. The first
            quarter is left out because a training fills its memory in it.
    """

    place: str
    num_samples: int
    peak: float
    early: float | None
    late: float | None
    limit: float | None

    @property
    def growth(self) -> float | None:
        """Growth `late / early - 1`; None if there are too few samples."""
        if not self.early or self.late is None:
            return None
        return self.late / self.early - 1


def memory_uses(records: Sequence[Record]) -> tuple[MeasuredMemory, ...]:
    """Return the memory use of each observed host and GPU."""
    found = []
    for host, samples in by_host(records).items():
        own = [(each.memory_bytes, each.memory_limit_bytes) for each in samples]
        found.append(_memory_use(host, own))
        for number in range(max((len(each.gpus) for each in samples), default=0)):
            gpus = [each.gpus[number] for each in samples if number < len(each.gpus)]
            pairs = [(each.memory_bytes, each.memory_limit_bytes) for each in gpus]
            found.append(_memory_use(f"{host} gpu {number}", pairs))
    return tuple(each for each in found if each is not None)


def _memory_use(
    place: str, samples: Sequence[tuple[int | None, int | None]]
) -> MeasuredMemory | None:
    sizes = [size for size, _ in samples if size is not None]
    if not sizes:
        return None
    limits = [limit for _, limit in samples if limit is not None]
    quarter = len(sizes) // 4
    is_enough = len(sizes) >= _LEAST_SAMPLES
    return MeasuredMemory(
        place=place,
        num_samples=len(sizes),
        peak=float(max(sizes)),
        early=fmean(sizes[quarter : 2 * quarter]) if is_enough else None,
        late=fmean(sizes[-quarter:]) if is_enough else None,
        limit=float(limits[-1]) if limits else None,
    )
