"""Cost of a strike on the training: steps redone and seconds without progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.training_log import LogMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One strike's cost: the step it went back from and to, and the seconds until it was further than before."""

    reached: int
    resumed_at: int
    seconds: float

    @property
    def steps_redone(self) -> int:
        """Steps that were done a second time."""
        return self.reached - self.resumed_at


def cost_of(at: float, marks: Sequence[LogMark], *, until: float) -> Cost | None:
    """Return what a strike at `at` cost; None if no process of the training started between it and `until`.

    Steps that were done but not yet printed are not known and not counted: with a metric line for each step there
    is at most one.

    Args:
        at: when it struck, in seconds since the epoch.
        marks: all of the training's, in order.
        until: when the next such strike came.
    """
    start = next((mark for mark in marks if mark.is_start and at < mark.at <= until), None)
    if start is None:
        return None
    reached = max((mark.step for mark in marks if mark.at < start.at), default=0)
    further = (mark.at for mark in marks if mark.at > start.at and mark.step > reached)
    return Cost(reached=reached, resumed_at=start.step, seconds=next(further, marks[-1].at) - at)
