"""Progress of a training, read from the logs of all its jobs, and the cost of a fault (strike).

The progress lines also report each start of the training's processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.training_line import TrainingLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMark:
    """Progress line of the training.

    Attributes:
        at: time of the line, epoch seconds.
        step: the completed step; for a start, the step from which the processes resume.
        is_start: whether the line reports a start of the processes.
    """

    at: float
    step: int
    is_start: bool = False


def parse_mark(message: str, *, at: float) -> LogMark | None:
    """Return the `LogMark` of a progress line, or None for other lines.

    A progress line reports a completed step, or a start of the training's processes. `at` is the line's time in
    epoch seconds.
    """
    line = TrainingLine.parse(message)
    if line is None or line.step is None or line.kind not in {"start", "step"}:
        return None
    return LogMark(at=at, step=line.step, is_start=line.kind == "start")


def read_marks(logs: Any, job_names: Iterable[str]) -> list[LogMark]:
    """Return the progress lines (marks) in the logs of all jobs, in the order of their times.

    Args:
        logs: a boto3 client of CloudWatch Logs.
        job_names: the training jobs of one logical job.

    Raises:
        ClientError: the service rejected a call.
        BotoCoreError: the service did not answer.
    """
    marks = [
        mark
        for name in job_names
        for message, at in _messages(logs, name)
        if (mark := parse_mark(message, at=at))
    ]
    return sorted(marks, key=lambda mark: mark.at)


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
    """Return the cost of a strike; None if the training's processes did not start between it and `until`.

    Only the first start after the strike counts. Fields of the result:

    - `reached` is the last step in the log before this start. A step that was completed but not yet printed is
      not included. If the training prints one metric line per step, at most one step is missing.
    - `seconds` is the time from the strike to the first mark after this start with a step above `reached`. If
      there is no such mark up to `until`, it is the time to the last mark up to `until`.

    Args:
        at: time of the strike, epoch seconds.
        marks: all marks of the training, in order.
        until: time of the next strike on the training, epoch seconds.
    """
    start = next((mark for mark in marks if mark.is_start and at < mark.at <= until), None)
    if start is None:
        return None
    reached = next((mark.step for mark in reversed(marks) if mark.at < start.at), 0)
    by_then = [mark for mark in marks if mark.at <= until]
    further = (mark.at for mark in by_then if mark.at > start.at and mark.step > reached)
    return Cost(reached=reached, resumed_at=start.step, seconds=next(further, by_then[-1].at) - at)


def _messages(logs: Any, job_name: str) -> Iterator[tuple[str, float]]:
    for stream in _streams(logs, job_name):
        token: dict[str, str] = {}
        while True:
            answer = logs.get_log_events(
                logGroupName=LOG_GROUP,
                logStreamName=stream["logStreamName"],
                startFromHead=True,
                **token,
            )
            yield from ((each["message"], each["timestamp"] / 1000) for each in answer["events"])
            if token == (token := {"nextToken": answer["nextForwardToken"]}):
                break


def _streams(logs: Any, job_name: str) -> list[dict[str, Any]]:
    """Return the log streams of a job's first host; empty if the log group does not exist yet."""
    pages = logs.get_paginator("describe_log_streams").paginate(
        logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job_name}/algo-1-"
    )
    try:
        return list(pages.build_full_result()["logStreams"])
    except logs.exceptions.ResourceNotFoundException:
        return []
