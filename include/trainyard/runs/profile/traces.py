"""torch.profiler traces of a training, found by their file names."""

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
        file: path relative to profile.html, such as `statistics/trace-rank-00000...`; the S3 address if the
            file was too large to be copied beside that page.
        first_step, last_step: the first and the last step that the trace covers, both included.
    """

    file: str
    rank: int
    attempt: int
    first_step: int
    last_step: int
    num_bytes: int

    @property
    def is_here(self) -> bool:
        """True if the file was copied beside the page."""
        return "://" not in self.file


def trace_of(file: str, *, num_bytes: int) -> Trace | None:
    """Return the trace that a file name describes, or None if it is not a trace."""
    found = _NAME.fullmatch(file.rpartition("/")[2])
    if found is None:
        return None
    rank, attempt, first, last = map(int, found.groups())
    return Trace(
        file=file, rank=rank, attempt=attempt, first_step=first, last_step=last, num_bytes=num_bytes
    )


def traces_in(folder: Path) -> tuple[Trace, ...]:
    """Return the traces in a run's statistics folder, sorted; paths are relative to the run's folder."""
    files = (
        trace_of(f"{folder.name}/{each.name}", num_bytes=each.stat().st_size)
        for each in sorted(folder.glob(PATTERN))
    )
    return in_order(each for each in files if each is not None)


def in_order(traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Return the traces, sorted by attempt, first step and rank."""
    return tuple(sorted(traces, key=lambda each: (each.attempt, each.first_step, each.rank)))
