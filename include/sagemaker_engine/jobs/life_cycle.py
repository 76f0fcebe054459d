"""Transitions of a job's stored state: pure changes of a dict with the service's wire names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import TERMINAL_STATUSES, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES = {
    "Pending": "Waiting for the instances of the training plan",
    "Starting": "Preparing the instances for training",
    "Downloading": "Downloading input data",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "Interrupted": "The managed spot training instances were interrupted; waiting for new ones",
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
}
"""StatusMessage per secondary status, in the service's words."""

ON_INSTANCES = frozenset({"Downloading", "Training", "Uploading"})
"""Secondary statuses in which a job has instances. In Stopping it has them if it had them before."""
NOT_WHILE_STOPPING = frozenset({"Pending", "Starting", "Downloading", "Training", "Interrupted"})
BETWEEN_INSTANCES = frozenset({"Interrupted", "Pending"})
"""Secondary statuses of a job that waits for new instances. The start after such a wait does not count as a retry."""

MAX_REASON_CHARS = 1024


def has_ended(kind: ResourceKind, state: dict[str, Any]) -> bool:
    """Return whether the job has ended; after that its state does not change."""
    return state.get(kind.status_key) in TERMINAL_STATUSES


def enter(kind: ResourceKind, state: dict[str, Any], secondary: str, *, at: float) -> None:
    """Change to a secondary status: end the current transition and begin a new one.

    Times never decrease. Nothing changes if the status is the current one, if the job has ended, or if the job is
    stopping and the status belongs to a new attempt. A processing job has no secondary statuses; the function sets its
    start time and primary status.
    """
    if has_ended(kind, state):
        return
    if kind is ResourceKind.PROCESSING:
        _enter_processing(state, secondary, at=at)
        return
    transitions = state.setdefault("SecondaryStatusTransitions", [])
    if transitions and transitions[-1]["Status"] == secondary:
        return
    if state.get("TrainingJobStatus") == "Stopping" and secondary in NOT_WHILE_STOPPING:
        return
    moment = max([at, *_times(transitions)])
    if transitions:
        transitions[-1].setdefault("EndTime", moment)
    transitions.append(
        {"Status": secondary, "StartTime": moment, "StatusMessage": MESSAGES[secondary]}
    )
    state["SecondaryStatus"] = secondary
    state["TrainingJobStatus"] = _primary(secondary, state.get("TrainingJobStatus"))
    if secondary == "Downloading":
        state.setdefault("TrainingStartTime", moment)


def finish(
    kind: ResourceKind,
    state: dict[str, Any],
    *,
    status: str,
    at: float,
    secondary: str | None = None,
    reason: str | None = None,
    discount: float = 0.0,
) -> None:
    """Change to a final status: set times, billable seconds and the FailureReason.

    A job that has ended already does not change. `discount` is the share of the price that spot capacity saves: it
    makes BillableTimeInSeconds smaller than TrainingTimeInSeconds.
    """
    if has_ended(kind, state):
        return
    if reason is not None:
        state["FailureReason"] = reason[:MAX_REASON_CHARS]
    if kind is ResourceKind.PROCESSING:
        state["ProcessingJobStatus"] = status
        state["ProcessingEndTime"] = max(at, state.get("ProcessingStartTime", at))
        return
    enter(kind, state, secondary or status, at=at)
    last = state["SecondaryStatusTransitions"][-1]
    last.setdefault("EndTime", last["StartTime"])
    state["TrainingJobStatus"] = status
    if "TrainingStartTime" in state:
        state["TrainingEndTime"] = last["StartTime"]
        seconds = round(seconds_on_instances(state["SecondaryStatusTransitions"]), 6)
        state["TrainingTimeInSeconds"] = max(1, math.ceil(seconds))
        state["BillableTimeInSeconds"] = max(1, math.ceil(seconds * (1 - discount)))


def seconds_on_instances(transitions: Sequence[dict[str, Any]]) -> float:
    """Return the seconds for which the job had instances, without a period that has not ended.

    The job has instances in Downloading, Training and Uploading, and in Stopping if it had them before. It has
    none while it waits for new ones.
    """
    seconds, has_instances = 0.0, False
    for each in transitions:
        status = each["Status"]
        has_instances = status in ON_INSTANCES or (has_instances and status == "Stopping")
        if has_instances and "EndTime" in each:
            seconds += float(each["EndTime"]) - float(each["StartTime"])
    return seconds


def seconds_in(status: str, transitions: Sequence[dict[str, Any]]) -> float:
    """Return the seconds in a secondary status over all attempts; a period counts only if it has ended."""
    return sum(
        float(each["EndTime"]) - float(each["StartTime"])
        for each in transitions
        if each["Status"] == status and "EndTime" in each
    )


def _enter_processing(state: dict[str, Any], secondary: str, *, at: float) -> None:
    if secondary == "Training":
        state.setdefault("ProcessingStartTime", at)
    if secondary == "Stopping":
        state["ProcessingJobStatus"] = "Stopping"
    elif "ProcessingJobStatus" not in state:
        state["ProcessingJobStatus"] = "InProgress"


def _primary(secondary: str, before: str | None) -> str:
    if secondary == "Stopping" or before == "Stopping":
        return "Stopping"
    return "InProgress"


def _times(transitions: list[dict[str, Any]]) -> list[float]:
    return [
        float(each[key]) for each in transitions for key in ("StartTime", "EndTime") if key in each
    ]
