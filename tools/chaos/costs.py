"""Cost of a strike on the training: repeated steps, and seconds without progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.training_log import LogMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one strike.

    Attributes:
        reached: the last step before the strike's effect.
        resumed_at: the step from which the training resumed.
        seconds: seconds from the strike until the training passed `reached`.
    """

    reached: int
    resumed_at: int
    seconds: float

    @property
    def steps_redone(self) -> int:
        """Number of repeated steps."""
        return self.reached - self.resumed_at


def cost_of(at: float, marks: Sequence[LogMark], *, until: float) -> Cost | None:
    """Return the cost of a strike, or None if no process of the training started between it and `until`.

    Steps that were done but not printed are not counted; with one metric line per step, this is at most one step. If
    the training never passes `reached`, the seconds count to its last mark.

    Args:
        at: time of the strike, epoch seconds.
        marks: all marks of the training, in order.
        until: time of the next strike on the training, epoch seconds.
    """
    start = next((mark for mark in marks if mark.is_start and at < mark.at <= until), None)
    if start is None:
        return None
    reached = max((mark.step for mark in marks if mark.at < start.at), default=0)
    further = (mark.at for mark in marks if mark.at > start.at and mark.step > reached)
    return Cost(reached=reached, resumed_at=start.step, seconds=next(further, marks[-1].at) - at)
