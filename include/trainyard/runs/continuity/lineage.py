"""Lineage of the training: the surviving steps of each attempt, and a check that their samples occur once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.runs.continuity.starts import TrainingStart


def kept_until(starts: Sequence[TrainingStart]) -> list[int]:
    """Return the last surviving step of each start.

    It is the smallest step from which any later start resumed: a later one may resume from an older checkpoint, or from
    step 0 if checkpoints are damaged. If it is below the start's own `resumed_at`, no step of that start survived.

    Worked example: starts at 0 (to step 40), 30 (to 50) and 10 (to 60) keep 10, 10 and 60.
    """
    kept: list[int] = []
    limit: int | None = None
    for start in reversed(starts):
        kept.append(start.last_step if limit is None else limit)
        limit = start.resumed_at if limit is None else min(limit, start.resumed_at)
    return kept[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Coverage of the sample positions of some steps by step lines, in samples.

    Attributes:
        seen: positions that are covered at least once.
        repeated: additional coverings (a position covered three times counts two).
        missed: positions before the end of the start's lines that no line covers.
        without_line: positions after the last step line of the start.
    """

    seen: int = 0
    repeated: int = 0
    missed: int = 0
    without_line: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            seen=self.seen + other.seen,
            repeated=self.repeated + other.repeated,
            missed=self.missed + other.missed,
            without_line=self.without_line + other.without_line,
        )


def coverage_of(start: TrainingStart, *, until: int) -> Coverage:
    """Return the coverage of the start's steps up to step `until`, without rolled-back steps."""
    first, end = start.resumed_at * start.global_batch_size, until * start.global_batch_size
    if end <= first:
        return Coverage()
    clipped = ((max(first, step.first), min(end, step.end)) for step in start.steps)
    pieces = sorted((low, high) for low, high in clipped if low < high)
    seen = repeated = missed = 0
    reach = first
    for low, high in pieces:
        missed += max(0, low - reach)
        repeated += max(0, min(reach, high) - low)
        seen += max(0, high - max(reach, low))
        reach = max(reach, high)
    rest = end - reach
    is_left_out = any(step.end >= end for step in start.steps)
    if is_left_out:
        return Coverage(seen=seen, repeated=repeated, missed=missed + rest)
    return Coverage(seen=seen, repeated=repeated, missed=missed, without_line=rest)
