"""Transitions of a job's stored state: pure changes of a dict under the service's wire names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.store import TERMINAL_STATUSES, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES = {
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
"""Secondary statuses and their messages, in the service's words."""

ON_INSTANCES = frozenset({"Downloading", "Training", "Uploading"})
"""Secondary statuses in which a job holds instances; in Stopping it does when it did before."""
NOT_WHILE_STOPPING = frozenset({"Starting", "Downloading", "Training", "Interrupted"})

MAX_REASON_CHARS = 1024


def has_ended(kind: ResourceKind, state: dict[str, Any]) -> bool:
    """Return whether the job has ended; from then on nothing moves its state."""
    return state.get(kind.status_key) in TERMINAL_STATUSES


def enter(kind: ResourceKind, state: dict[str, Any], secondary: str, *, at: float) -> None:
    """Move to a secondary status: close the transition before, open the next one.

    Times never run back. Entering the status that is already there changes nothing, nor does
    entering any in a job that has ended, nor a new attempt's in one that stops. A processing job has no secondary
    statuses; only its start is noted.
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
    """Move to the end: status, times, billable seconds, the reason of a failure.

    The first end counts: a job that has ended stays as it is. `discount` is the share of the price that spot capacity
    saves; the service tells it as BillableTimeInSeconds < TrainingTimeInSeconds.
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
    """Return how long the job had instances: from Downloading on, without the waits for new ones."""
    seconds, has_instances = 0.0, False
    for each in transitions:
        status = each["Status"]
        has_instances = status in ON_INSTANCES or (has_instances and status == "Stopping")
        if has_instances and "EndTime" in each:
            seconds += float(each["EndTime"]) - float(each["StartTime"])
    return seconds


def seconds_in(status: str, transitions: Sequence[dict[str, Any]]) -> float:
    """Return how long the job was in a secondary status, over all attempts; one it is still in is left out."""
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
