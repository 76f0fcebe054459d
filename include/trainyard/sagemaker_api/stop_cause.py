"""Reason for which Trainyard stopped a job.

It is stored as a tag of the job, so it survives a crash of the worker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEY = "trainyard:stopped"


class StopCause(StrEnum):
    """Reasons for which Trainyard stops a job without a request from a person."""

    HUNG = "hung"
    """The training stopped logging progress."""
    NO_CAPACITY = "no capacity"
    """The job waited for instances longer than its capacity rung allows."""
    BUDGET = "budget"
    """The next trials would have exceeded the search's budget, or the job would have exceeded its cost cap."""
    IDLE = "idle accelerators"
    """The training's accelerators were idle for `stop_if_idle_minutes`."""
    WINDOW = "training plan"
    """The window of the job's training plan was about to end."""
    TIME = "time"
    """No further trial could have completed within the search's time limit."""

    @property
    def tag(self) -> dict[str, str]:
        """The tag with this reason."""
        return {"Key": _KEY, "Value": str(self)}


def stop_cause(tags: Iterable[Mapping[str, str]]) -> StopCause | None:
    """Return the reason in a job's tags, or None if Trainyard did not stop the job."""
    values = {each["Value"] for each in tags if each["Key"] == _KEY}
    return next((cause for cause in StopCause if str(cause) in values), None)
