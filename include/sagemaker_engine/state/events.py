"""EventBridge events of job state changes, in the service's format.

Source: "Amazon EventBridge events" in the SageMaker developer guide: SageMaker training job state
change, SageMaker processing job state change. Times in the detail are epoch milliseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import ResourceKind

if TYPE_CHECKING:
    from sagemaker_engine.state.jobs import JobRow


def state_changes(job: JobRow) -> list[dict[str, Any]]:
    """Return the states that the job has reached so far, in order.

    Each state is a dict. Its keys are members of the event's detail, such as `ProcessingJobStatus`.
    """
    if job.kind is ResourceKind.TRAINING:
        transitions = job.state["SecondaryStatusTransitions"]
        return [
            _training_change(job, transitions[: count + 1]) for count in range(len(transitions))
        ]
    statuses = ["InProgress"]
    if job.stop_requested_at is not None:
        statuses.append("Stopping")
    if job.is_terminal:
        statuses.append(job.status)
    return [{"ProcessingJobStatus": status} for status in statuses]


def state_event(job: JobRow, change: dict[str, Any]) -> dict[str, Any]:
    """Return the event of one state change as an entry of PutEvents."""
    noun = job.kind.wire_name
    detail = {
        **job.request,
        f"{noun}Name": job.name,
        f"{noun}Arn": job.arn,
        "CreationTime": job.created_at,
        **job.state,
        **change,
        "Tags": job.tags,
    }
    return {
        "Source": "aws.sagemaker",
        "DetailType": f"SageMaker {job.kind.value.title()} Job State Change",
        "Resources": [job.arn],
        "Detail": json.dumps(_in_milliseconds(detail)),
    }


def _training_change(job: JobRow, transitions: list[dict[str, Any]]) -> dict[str, Any]:
    last = transitions[-1]["Status"]
    is_latest = len(transitions) == len(job.state["SecondaryStatusTransitions"])
    before = "Stopping" if last == "Stopping" else "InProgress"
    return {
        "TrainingJobStatus": job.status if is_latest else before,
        "SecondaryStatus": last,
        "SecondaryStatusTransitions": transitions,
    }


def _in_milliseconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: int(item * 1000)
            if key.endswith("Time") and isinstance(item, float)
            else _in_milliseconds(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_in_milliseconds(item) for item in value]
    return value
