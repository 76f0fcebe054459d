"""The torch.profiler traces that a training left, by their file names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Written by training_scripts/trainer/profiling.py.
_NAME = re.compile(r"trace-rank-(\d{5})\.attempt-(\d{4})\.steps-(\d+)-(\d+)\.json\.gz")
PATTERN = "trace-*.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trace file.

    Attributes:
        file: where it lies beside profile.html, such as `statistics/trace-rank-00000...`; an address where it was
            too large to be brought there.
        first_step, last_step: what it covers, both included.
    """

    file: str
    rank: int
    attempt: int
    first_step: int
    last_step: int
    num_bytes: int

    @property
    def is_here(self) -> bool:
        """True if it lies beside the page."""
        return "://" not in self.file


def trace_of(file: str, *, num_bytes: int) -> Trace | None:
    """Return what a file's name says; None if it is no trace."""
    found = _NAME.fullmatch(file.rpartition("/")[2])
    if found is None:
        return None
    rank, attempt, first, last = map(int, found.groups())
    return Trace(
        file=file, rank=rank, attempt=attempt, first_step=first, last_step=last, num_bytes=num_bytes
    )


def traces_in(folder: Path) -> tuple[Trace, ...]:
    """Return the traces in a run's statistics folder, by steps and rank; their places are relative to the run's."""
    files = (
        trace_of(f"{folder.name}/{each.name}", num_bytes=each.stat().st_size)
        for each in sorted(folder.glob(PATTERN))
    )
    return in_order(each for each in files if each is not None)


def in_order(traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Return traces by steps, then rank."""
    return tuple(sorted(traces, key=lambda each: (each.attempt, each.first_step, each.rank)))
