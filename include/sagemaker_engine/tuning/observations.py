"""Observations of trials for the search algorithms, independent of their storage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagemaker_engine.tuning.ranges import Point


class TrialPhase(StrEnum):
    """Phase of a trial for the search; `ObjectiveStatus` on the wire."""

    PENDING = "Pending"
    SUCCEEDED = "Succeeded"
    """The trial ended with an objective, also if it was stopped early."""
    FAILED = "Failed"
    """The trial ended without an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One trial: its values, its objective (the last that it logged) and the earlier ones.

    `curve` has every value of the objective metric in the order of the log, one per epoch. `stopped` is true if the
    search stopped the trial early.
    """

    point: Point
    phase: TrialPhase
    objective: float | None = None
    curve: tuple[float, ...] = ()
    stopped: bool = False


def is_better(value: float, other: float, *, maximize: bool) -> bool:
    """Return whether one objective is better than another."""
    return value > other if maximize else value < other
