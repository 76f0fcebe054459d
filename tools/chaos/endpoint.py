"""Reader of a run's jobs, progress, log and ledger from the stack's AWS endpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chaos.jobs import ObservedAttempt, attempts
from chaos.training_log import LogMark, read_marks
from trainyard.stack.airflow_environment import REGION
from trainyard.stack.aws import AwsEndpoint

TRAINING_JOBS = "train-end-to-end-train-"


class ChaosEndpoint:
    """Clients of one engine, without retries, since an error may be an injected fault.

    All methods except `training_step` raise botocore's errors.
    """

    def __init__(self, url: str) -> None:
        session = boto3.session.Session("local", "local", region_name=REGION)
        config = Config(
            retries={"total_max_attempts": 1}, connect_timeout=3, read_timeout=20, proxies={}
        )
        self._sagemaker = session.client("sagemaker", endpoint_url=url, config=config)
        self._logs = session.client("logs", endpoint_url=url, config=config)
        self._s3 = session.client("s3", endpoint_url=url, config=config)
        self._aws = AwsEndpoint(url)

    def training_step(self) -> int:
        """Return the step of the running training; 0 if none runs, or if the engine does not answer."""
        with suppress(BotoCoreError, ClientError):
            found = self._sagemaker.list_training_jobs(
                NameContains=TRAINING_JOBS, StatusEquals="InProgress"
            )
            for job in found["TrainingJobSummaries"]:
                view = self._aws.job(job["TrainingJobName"], kind="training")
                return int(view.metrics.get("step", 0)) if view else 0
        return 0

    def jobs(self, *, since: float) -> list[ObservedAttempt]:
        """Return the jobs that were created at or after `since`, epoch seconds."""
        return attempts(self._sagemaker, since=since)

    def marks(self, jobs: list[ObservedAttempt]) -> list[LogMark]:
        """Return the progress of the training over all its jobs."""
        trained = [job.name for job in jobs if job.name.startswith(TRAINING_JOBS)]
        return read_marks(self._logs, trained)

    def ledger(self, uri: str) -> list[dict[str, Any]]:
        """Return the entries of a run's ledger below an S3 prefix."""
        place = urlsplit(uri)
        prefix = place.path.strip("/") + "/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=place.netloc, Prefix=prefix
        )
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        bodies = (self._s3.get_object(Bucket=place.netloc, Key=key)["Body"] for key in keys)
        return [json.loads(body.read()) for body in bodies]
