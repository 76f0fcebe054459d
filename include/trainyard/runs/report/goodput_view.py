"""Goodput section of the page: wall time of a run by cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.runs.goodput import Cause
from trainyard.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord

COLOURS: Mapping[str, str] = {
    Cause.STEPPING: "working",
    Cause.DATA_STALL: "interrupted",
    Cause.CHECKPOINTING: "uploading",
    Cause.REDONE: "stopping",
    Cause.CAPACITY: "waiting",
    Cause.STARTING: "downloading",
    Cause.FINISHING: "uploading",
    Cause.DATA: "good",
    Cause.SEARCHING: "rate",
    Cause.EVALUATING: "speed",
    Cause.AIRFLOW: "other",
}
"""Colour per cause: the name of a variable in the style sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseView:
    """One cause: its name, colour, percentage of the wall time, and duration."""

    name: str
    colour: str
    percent: float
    duration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputView:
    """Goodput section: one sentence, and the causes in the order of the record."""

    sentence: str
    causes: tuple[CauseView, ...]


def goodput_view(record: RunRecord) -> GoodputView | None:
    """Return the section; None for a run without wall time."""
    told = record.goodput
    if not told or not told["wall_seconds"]:
        return None
    causes = tuple(
        CauseView(
            name=cause,
            colour=COLOURS.get(cause, "other"),
            percent=100 * seconds / told["wall_seconds"],
            duration=format_duration(seconds),
        )
        for cause, seconds in told["seconds"].items()
    )
    wall = format_duration(told["wall_seconds"])
    return GoodputView(
        sentence=f"{told['share']:.0%} of {wall} went into steps that survived", causes=causes
    )
