"""The jobs that a run started, as the AWS endpoint lists them: which logical job each is an attempt of."""

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
    """One job. Times are in seconds since the epoch; `ended_at` is None while it goes on."""

    name: str
    status: str
    created_at: float
    ended_at: float | None
    billable_s: int = 0
    num_interruptions: int = 0

    @property
    def logical(self) -> str:
        """The logical job that it is an attempt of: its name without attempt and digest."""
        match = NAME.match(self.name)
        return match["logical"] if match else self.name


def attempts(sagemaker: Any, *, since: float) -> list[ObservedAttempt]:
    """Return every training and processing job created at or after `since`, oldest first.

    Fails as the client fails.
    """
    found = [*_training(sagemaker, since), *_processing(sagemaker, since)]
    return sorted(found, key=lambda job: job.created_at)


def faults_of(jobs: Iterable[ObservedAttempt]) -> Iterator[str]:
    """Yield what is wrong with a run's jobs.

    Each logical job has one completed attempt, no attempt goes on, and none began before the one before had ended.
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
    """Return when a job that never trained ended: only its last modification says."""
    return None if answer["TrainingJobStatus"] in LIVE else answer["LastModifiedTime"]


def _seconds(time: Any) -> float | None:
    return None if time is None else float(time.timestamp())
