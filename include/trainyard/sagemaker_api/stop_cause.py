"""Why Trainyard stopped a job, written on the job as a tag: whoever looks later knows, also after a crash."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEY = "trainyard:stopped"


class StopCause(StrEnum):
    """Reasons for which the operator stops a job by itself."""

    HUNG = "hung"
    """The training was heard of and then fell silent."""
    NO_CAPACITY = "no capacity"
    """The job waited for instances longer than its rung allows."""
    BUDGET = "budget"
    """The next trials of the search would have crossed its budget, or the job its cost cap."""
    TIME = "time"
    """No further trial of the search could have ended within its time."""

    @property
    def tag(self) -> dict[str, str]:
        """The tag that says so."""
        return {"Key": _KEY, "Value": str(self)}


def stop_cause(tags: Iterable[Mapping[str, str]]) -> StopCause | None:
    """Return the cause that a job's tags name; None when they name none."""
    values = {each["Value"] for each in tags if each["Key"] == _KEY}
    return next((cause for cause in StopCause if str(cause) in values), None)
