"""Jobs of a run from the AWS endpoint, each as an attempt of a logical job."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = re.compile(r"^(?P<logical>.+?)(?:-r\d+)?(?:-a\d+)?-[0-9a-f]{10}$")
LIVE = ("InProgress", "Stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """Job of a run. Times are epoch seconds; `ended_at` is None while the job runs."""

    name: str
    status: str
    created_at: float
    ended_at: float | None
    billable_s: int = 0
    num_interruptions: int = 0

    @property
    def logical(self) -> str:
        """Name of the logical job: the job's name without attempt and digest."""
        match = NAME.match(self.name)
        return match["logical"] if match else self.name


def attempts(sagemaker: Any, *, since: float) -> list[ObservedAttempt]:
    """Return all training and processing jobs created at or after `since` (epoch seconds), oldest first.

    Raises:
        ClientError: the endpoint rejected a call.
        BotoCoreError: the endpoint did not answer.
    """
    found = [*_training(sagemaker, since), *_processing(sagemaker, since)]
    return sorted(found, key=lambda job: job.created_at)


def faults_of(jobs: Iterable[ObservedAttempt]) -> Iterator[str]:
    """Yield the faults of a run's jobs as text.

    Each logical job must have exactly one completed attempt. No attempt may still run, and none may have started before
    the previous one ended.
    """
    by_logical: defaultdict[str, list[ObservedAttempt]] = defaultdict(list)
    for job in jobs:
        by_logical[job.logical].append(job)
    if not by_logical:
        yield "the run started no job"
    for logical, its_own in by_logical.items():
        completed = sum(job.status == "Completed" for job in its_own)
        if completed != 1:
            yield f"{logical} has {completed} completed attempts, not 1"
        yield from (f"{job.name} is still {job.status}" for job in its_own if job.status in LIVE)
        for earlier, later in pairwise(its_own):
            if earlier.ended_at is None or later.created_at < earlier.ended_at:
                yield f"{later.name} was started while {earlier.name} went on"


def _training(sagemaker: Any, since: float) -> Iterator[ObservedAttempt]:
    for name in _names(sagemaker, "list_training_jobs", "TrainingJob", since):
        answer = sagemaker.describe_training_job(TrainingJobName=name)
        statuses = [each["Status"] for each in answer.get("SecondaryStatusTransitions", ())]
        yield ObservedAttempt(
            name=name,
            status=answer["TrainingJobStatus"],
            created_at=answer["CreationTime"].timestamp(),
            ended_at=_seconds(answer.get("TrainingEndTime") or _last(answer)),
            billable_s=answer.get("BillableTimeInSeconds", 0),
            num_interruptions=statuses.count("Interrupted"),
        )


def _processing(sagemaker: Any, since: float) -> Iterator[ObservedAttempt]:
    for name in _names(sagemaker, "list_processing_jobs", "ProcessingJob", since):
        answer = sagemaker.describe_processing_job(ProcessingJobName=name)
        yield ObservedAttempt(
            name=name,
            status=answer["ProcessingJobStatus"],
            created_at=answer["CreationTime"].timestamp(),
            ended_at=_seconds(answer.get("ProcessingEndTime")),
        )


def _names(sagemaker: Any, operation: str, kind: str, since: float) -> Iterator[str]:
    pages = sagemaker.get_paginator(operation).paginate().build_full_result()
    for job in pages[f"{kind}Summaries"]:
        if job["CreationTime"].timestamp() >= since:
            yield job[f"{kind}Name"]


def _last(answer: dict[str, Any]) -> Any:
    """Return the end of a job that never trained, which is its last modification; None while it runs."""
    return None if answer["TrainingJobStatus"] in LIVE else answer["LastModifiedTime"]


def _seconds(time: Any) -> float | None:
    return None if time is None else float(time.timestamp())
