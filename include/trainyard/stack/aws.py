"""Reader of the AWS endpoint for the launcher: job states, metrics, and the report's objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.catalog.instances import catalogue
from trainyard.cost.cost_cap import usd_per_s
from trainyard.cost.job_cost import known_total
from trainyard.job_status import JobStatus
from trainyard.stack.airflow_environment import REGION
from trainyard.training_line import TrainingLine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG_GROUP = {
    "training": "/aws/sagemaker/TrainingJobs",
    "processing": "/aws/sagemaker/ProcessingJobs",
}
_DESCRIBE = {
    "training": ("describe_training_job", "TrainingJobName", "TrainingJobStatus"),
    "processing": ("describe_processing_job", "ProcessingJobName", "ProcessingJobStatus"),
    "tuning": (
        "describe_hyper_parameter_tuning_job",
        "HyperParameterTuningJobName",
        "HyperParameterTuningJobStatus",
    ),
    "automl": ("describe_auto_ml_job_v2", "AutoMLJobName", "AutoMLJobStatus"),
    "endpoint": ("describe_endpoint", "EndpointName", "EndpointStatus"),
}
TAIL_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """State of a job: its status, and the numbers of its last metric line.

    For a search, the numbers are the allowed, ended and running trials, and the best value of `objective` so far.

    Attributes:
        cost_usd: cost so far at the on-demand price; None if it is not known.
    """

    name: str
    status: str
    metrics: dict[str, float]
    objective: str = ""
    cost_usd: float | None = None


def cost_so_far(job: Mapping[str, Any], *, now: datetime) -> float | None:
    """Return an upper bound of a training or processing job's cost so far in USD; None if the price is unknown.

    It counts the billed seconds if the service reports them, otherwise all time since the start. On spot this includes
    unbilled waits.
    """
    processing = job.get("ProcessingResources", {}).get("ClusterConfig", {})
    cluster = job.get("ResourceConfig") or processing
    known = catalogue().types.get(str(cluster.get("InstanceType")))
    price = known.price_usd_per_hour if known else None
    price = 0.0 if cluster.get("TrainingPlanArn") else price  # paid up front
    rate = usd_per_s(price, int(cluster.get("InstanceCount") or 1))
    started = job.get("TrainingStartTime") or job.get("ProcessingStartTime")
    ended = job.get("TrainingEndTime") or job.get("ProcessingEndTime") or now
    seconds = job.get("BillableTimeInSeconds")
    if seconds is None:
        seconds = max(0.0, (ended - started).total_seconds()) if started else 0.0
    return None if rate is None else rate * seconds


class AwsEndpoint:
    """Clients of the stack's AWS endpoint."""

    def __init__(self, url: str) -> None:
        session = boto3.session.Session("local", "local", region_name=REGION)
        config = Config(
            retries={"total_max_attempts": 2}, connect_timeout=3, read_timeout=20, proxies={}
        )
        self._sagemaker = session.client("sagemaker", endpoint_url=url, config=config)
        self._logs = session.client("logs", endpoint_url=url, config=config)
        self._s3 = session.client("s3", endpoint_url=url, config=config)
        self._metrics: dict[str, dict[str, float]] = {}

    def job(self, name: str, *, kind: str) -> JobView | None:
        """Return the current state of a job; None if the endpoint does not respond, or does not have the job (yet)."""
        try:
            if kind == "tuning":
                return self._search(name)
            if kind == "automl":
                return self._automl(name)
            if kind == "training":
                answer: dict[str, Any] = dict(
                    self._sagemaker.describe_training_job(TrainingJobName=name)
                )
                status = str(answer.get("SecondaryStatus") or answer["TrainingJobStatus"])
            else:
                answer = dict(self._sagemaker.describe_processing_job(ProcessingJobName=name))
                status = str(answer["ProcessingJobStatus"])
            metrics = self._read_metrics(name, LOG_GROUP[kind])
        except (BotoCoreError, ClientError):
            return None
        cost = cost_so_far(answer, now=datetime.now(UTC))
        return JobView(name=name, status=status, metrics=metrics, cost_usd=cost)

    def _search(self, name: str) -> JobView:
        answer = self._sagemaker.describe_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name
        )
        config, counters = (
            answer["HyperParameterTuningJobConfig"],
            answer["TrainingJobStatusCounters"],
        )
        running = counters.get(JobStatus.IN_PROGRESS, 0)
        numbers = {
            "trials_ended": float(sum(map(int, counters.values())) - running),
            "trials_running": float(running),
        }
        if most := config["ResourceLimits"].get("MaxNumberOfTrainingJobs"):
            numbers["trials"] = float(most)
        best = answer.get("BestTrainingJob", {}).get("FinalHyperParameterTuningJobObjectiveMetric")
        if best:
            numbers["best"] = float(best["Value"])
        return JobView(
            name=name,
            status=str(answer["HyperParameterTuningJobStatus"]),
            metrics=numbers,
            objective=str(config.get("HyperParameterTuningJobObjective", {}).get("MetricName", "")),
            cost_usd=self._cost_of_trials(name, answer),
        )

    def _cost_of_trials(self, name: str, search: dict[str, Any]) -> float | None:
        pages = self._sagemaker.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
        cluster = search.get("TrainingJobDefinition", {}).get("ResourceConfig", {})
        now = datetime.now(UTC)
        return known_total(
            cost_so_far({**trial, "ResourceConfig": cluster}, now=now)
            for page in pages.paginate(HyperParameterTuningJobName=name)
            for trial in page["TrainingJobSummaries"]
        )

    def _automl(self, name: str) -> JobView:
        answer = self._sagemaker.describe_auto_ml_job_v2(AutoMLJobName=name)
        pages = self._sagemaker.get_paginator("list_candidates_for_auto_ml_job")
        statuses = [
            each["CandidateStatus"]
            for page in pages.paginate(AutoMLJobName=name)
            for each in page["Candidates"]
        ]
        running = statuses.count(JobStatus.IN_PROGRESS)
        numbers = {
            "candidates_ended": float(len(statuses) - running),
            "candidates_running": float(running),
        }
        config = answer["AutoMLProblemTypeConfig"]["TabularJobConfig"]
        if most := config.get("CompletionCriteria", {}).get("MaxCandidates"):
            numbers["candidates"] = float(most)
        best = answer.get("BestCandidate", {}).get("FinalAutoMLJobObjectiveMetric", {})
        if best:
            numbers["best"] = float(best["Value"])
        return JobView(
            name=name,
            status=str(answer["AutoMLJobSecondaryStatus"]),
            metrics=numbers,
            objective=str(best.get("MetricName", "")),
        )

    def job_status(self, name: str, *, kind: str) -> str | None:
        """Return the status of a job or an endpoint; None if it does not exist.

        Raises:
            ClientError: the service rejected the call.
        """
        describe, member, answer = _DESCRIBE[kind]
        try:
            return str(getattr(self._sagemaker, describe)(**{member: name})[answer])
        except ClientError as error:
            detail = error.response.get("Error", {})
            if detail.get("Code") in {"ValidationException", "ResourceNotFound"}:
                return None
            raise

    def json_object(self, uri: str) -> dict[str, Any]:
        """Return the content of a JSON object. Raises a ClientError if there is no such object."""
        parts = urlsplit(uri)
        body = self._s3.get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))["Body"]
        return dict(json.loads(body.read()))

    def download(self, uri: str, to: Path) -> Path:
        """Copy one object to a file and return the file. Raises a ClientError if there is no such object."""
        parts = urlsplit(uri)
        to.parent.mkdir(parents=True, exist_ok=True)
        self._s3.download_file(parts.netloc, parts.path.lstrip("/"), str(to))
        return to

    def objects_below(self, uri: str) -> list[str]:
        """Return the addresses of the objects below a prefix such as `s3://bucket/run/report/`."""
        parts = urlsplit(uri)
        pages = self._s3.get_paginator("list_objects_v2")
        return [
            f"s3://{parts.netloc}/{each['Key']}"
            for page in pages.paginate(Bucket=parts.netloc, Prefix=parts.path.lstrip("/"))
            for each in page.get("Contents", ())
        ]

    def _read_metrics(self, name: str, group: str) -> dict[str, float]:
        """Return the newest value of each metric that was found in a job's log.

        The metrics are the numbers in the log's metric lines (`parse_metrics`). Each call reads the last
        `TAIL_LINES` lines of the first instance's log streams; metrics from earlier calls are kept. `name` is the
        job's name, `group` its log group.
        """
        known = self._metrics.setdefault(name, {})
        streams = self._logs.describe_log_streams(
            logGroupName=group, logStreamNamePrefix=f"{name}/algo-1-"
        )["logStreams"]
        for stream in streams:
            events = self._logs.get_log_events(
                logGroupName=group,
                logStreamName=stream["logStreamName"],
                limit=TAIL_LINES,
                startFromHead=False,
            )["events"]
            for event in events:
                known.update(parse_metrics(event["message"]))
        return known


def parse_metrics(line: str) -> dict[str, float]:
    """Return the numbers of a metric line; empty for any other line.

    `trainyard step=120 loss=2.34 max_steps=9` -> {"step": 120.0, "loss": 2.34, "max_steps": 9.0}.
    The `step` of an `eval` line is left out, because it is never newer than the step of the last step line.
    """
    content = TrainingLine.parse(line)
    if content is None or content.kind not in {"step", "eval"}:
        return {}
    keys = content.values.keys() - ({"step"} if content.kind == "eval" else set())
    return {key: number for key in keys if (number := content.number(key)) is not None}
