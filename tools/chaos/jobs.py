"""Jobs, training progress and ledger of a chaos run, read through the AWS endpoint of the run's stack.

All jobs that are attempts of the same work form one logical job. Its name is the name of these jobs without
attempt and digest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chaos.training_log import LogMark, read_marks
from trainyard.job_status import JobStatus
from trainyard.stack.airflow_environment import REGION
from trainyard.stack.aws import AwsEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = re.compile(r"^(?P<logical>.+?)(?:-r\d+)?(?:-a\d+)?-[0-9a-f]{10}$")
LIVE = (JobStatus.IN_PROGRESS, JobStatus.STOPPING)
TRAINING_JOBS = "train-end-to-end-train-"


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


class ChaosEndpoint:
    """Reader of a run's jobs, progress, log and ledger. All methods except `training_step` raise botocore's errors.

    Its calls for jobs and logs are not retried, because an error may be an injected fault.
    """

    def __init__(self, url: str) -> None:
        session = boto3.session.Session("local", "local", region_name=REGION)
        config = Config(
            retries={"total_max_attempts": 1}, connect_timeout=3, read_timeout=20, proxies={}
        )
        self._sagemaker = session.client("sagemaker", endpoint_url=url, config=config)
        self._logs = session.client("logs", endpoint_url=url, config=config)
        self._aws = AwsEndpoint(url)

    def training_step(self) -> int:
        """Return the step of the running training; 0 if none runs, or if the engine does not answer."""
        with suppress(BotoCoreError, ClientError):
            found = self._sagemaker.list_training_jobs(
                NameContains=TRAINING_JOBS, StatusEquals=JobStatus.IN_PROGRESS
            )
            for job in found["TrainingJobSummaries"]:
                view = self._aws.job(job["TrainingJobName"], kind="training")
                return int(view.metrics.get("step", 0)) if view else 0
        return 0

    def jobs(self, *, since: float) -> list[ObservedAttempt]:
        """Return the jobs that were created at or after `since`, epoch seconds."""
        return attempts(self._sagemaker, since=since)

    def marks(self, jobs: list[ObservedAttempt]) -> list[LogMark]:
        """Return the starts and steps in the logs of the training jobs among `jobs`, in the order of time."""
        trained = [job.name for job in jobs if job.name.startswith(TRAINING_JOBS)]
        return read_marks(self._logs, trained)

    def ledger(self, uri: str) -> list[dict[str, Any]]:
        """Return the entries of a run's ledger below an S3 prefix."""
        return [self._aws.json_object(each) for each in self._aws.objects_below(f"{uri}/")]


def attempts(sagemaker: Any, *, since: float) -> list[ObservedAttempt]:
    """Return all training and processing jobs created at or after `since` (epoch seconds), oldest first.

    Raises:
        ClientError: the endpoint rejected a call.
        BotoCoreError: the endpoint did not answer.
    """
    found = [*_training(sagemaker, since), *_processing(sagemaker, since)]
    return sorted(found, key=lambda job: job.created_at)


def faults_of(jobs: Iterable[ObservedAttempt]) -> Iterator[str]:
    """Yield one text for each way in which a run's jobs violate a rule.

    The run must have started a job. Each logical job must have exactly one completed attempt. No attempt may
    still run. No attempt may have started before the previous one of the same logical job ended.
    """
    by_logical: defaultdict[str, list[ObservedAttempt]] = defaultdict(list)
    for job in jobs:
        by_logical[job.logical].append(job)
    if not by_logical:
        yield "the run started no job"
    for logical, its_own in by_logical.items():
        completed = sum(job.status == JobStatus.COMPLETED for job in its_own)
        if completed != 1:
            yield f"{logical} has {completed} completed attempts, not 1"
        yield from (f"{job.name} is still {job.status}" for job in its_own if job.status in LIVE)
        for earlier, later in pairwise(its_own):
            if earlier.ended_at is None or later.created_at < earlier.ended_at:
                yield f"{later.name} was started while {earlier.name} was running"


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
    """Return the end time of a job that never trained: the time of its last modification. None while it runs."""
    return None if answer["TrainingJobStatus"] in LIVE else answer["LastModifiedTime"]


def _seconds(time: Any) -> float | None:
    return None if time is None else float(time.timestamp())
