"""`TrainingFeed`: jobs and log of one run's tasks, read from AWS seldom, however many people watch."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import TrainingRunError
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live.accrual import accrued_usd
from trainyard.runs.live.training_events import TrainingEvents
from trainyard.sagemaker_api.names import job_name
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.job_kinds import JOB_APIS, JobKind
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.triggers.rule_findings import DOCUMENT_NAME, LIVE_NAME, document_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trainyard.runs.live.facts import RunRow
    from trainyard.sagemaker_api.snapshot import JobSnapshot

log = logging.getLogger(__name__)

LOG_EVERY_S = 0.5
"""Between two readings of one run's log, however many people look: GetLogEvents allows 25 calls a second."""
_JOBS_EVERY_S = 3.0
_LISTED_JOBS_EVERY_S = 10.0
_MOST_LISTED = 20
_STREAMS_EVERY_S = 10.0
_RULES_EVERY_S = 5.0
_MOST_PAGES = 20  # of a log in one reading: 10,000 lines each at most
_MOST_ATTEMPTS = 50
_MOST_FEEDS = 64
_CLIENTS_LIVE_S = 600.0
_KINDS = {
    TaskId.SHARD: JobKind.PROCESSING,
    TaskId.TUNE: JobKind.TUNING,
    TaskId.TRAIN: JobKind.TRAINING,
    TaskId.EVALUATE: JobKind.PROCESSING,
    TaskId.SEARCH: JobKind.AUTOML,
}
FAULTS = (TrainingRunError, BotoCoreError, ClientError)


@dataclass(slots=True)
class _LogReader:
    """Reading positions in the log of one job's first host, which has the lines of rank 0.

    Every start of a host opens another stream.
    """

    job: str
    tokens: OrderedDict[str, str | None] = field(default_factory=OrderedDict)
    listed_at: float = 0.0
    is_whole: bool = False

    def new_lines(self, logs: Any, *, now: float, is_over: bool) -> Iterator[LogLine]:
        """Yield the lines that are new since the last call.

        Raises:
            ClientError: the service refuses.
            BotoCoreError: it does not answer.
        """
        if self.is_whole:
            return
        if is_over or not self.tokens or now - self.listed_at >= _STREAMS_EVERY_S:
            self._list(logs)
            self.listed_at = now
        is_behind = False
        for stream in self.tokens:
            is_behind = False
            for _ in range(_MOST_PAGES):
                token = self.tokens[stream]
                page = logs.get_log_events(
                    logGroupName=JOB_APIS[JobKind.TRAINING].log_group,
                    logStreamName=stream,
                    startFromHead=True,
                    **({"nextToken": token} if token else {}),
                )
                for event in page["events"]:
                    text = str(event["message"]).rstrip("\r\n")
                    yield LogLine(
                        job=self.job, stream=stream, time_ms=int(event["timestamp"]), text=text
                    )
                self.tokens[stream] = page["nextForwardToken"]
                is_behind = page["nextForwardToken"] != token
                if not is_behind:
                    break
            if is_behind:  # a later stream comes after this one
                break
        self.is_whole = is_over and not is_behind

    def _list(self, logs: Any) -> None:
        try:
            streams = logs.describe_log_streams(
                logGroupName=JOB_APIS[JobKind.TRAINING].log_group,
                logStreamNamePrefix=f"{self.job}/algo-1-",
            )["logStreams"]
        except ClientError as error:
            if code_and_message(error)[0] != "ResourceNotFoundException":  # no job has logged yet
                raise
            return
        for each in sorted(streams, key=lambda each: each["logStreamName"]):
            self.tokens.setdefault(each["logStreamName"], None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """State of a run's jobs at one moment.

    Attributes:
        jobs: snapshots of each task's jobs, by task id, oldest first.
        events: of the training; None if it has not begun.
        rules: the documents that the rules wrote so far.
        fault: why something is missing; None if nothing is.
    """

    jobs: Mapping[str, Sequence[Mapping[str, Any]]]
    events: TrainingEvents | None
    rules: tuple[Mapping[str, Any], ...]
    fault: str | None = None


class TrainingFeed:
    """Reads one run's jobs; what has ended is read once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read_at: dict[str, float] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._logs: dict[str, _LogReader] = {}
        self._events = TrainingEvents()
        self._rules: dict[str, Mapping[str, Any]] = {}
        self._last = Reading(jobs={}, events=None, rules=())

    def read(self, run: RunRow, clients: AwsClients, *, jobs_only: bool = False) -> Reading:
        """Return the run's jobs as they are now.

        What AWS refuses, or does not answer, is missing; `fault` says why.

        Args:
            run: what Airflow knows.
            clients: of the run's connection.
            jobs_only: leave log and rules as they were; then a reading may be ten seconds old.
        """
        with self._lock:
            now = time.time()
            fault, jobs = self._last.fault, {**self._last.jobs}
            try:
                if self._is_due("jobs", _LISTED_JOBS_EVERY_S if jobs_only else _JOBS_EVERY_S, now):
                    fault = None
                    for task_id in run.jobs:
                        jobs[task_id] = self._jobs(run, task_id, clients)
                training = jobs.get(TaskId.TRAIN, ())
                if not jobs_only and self._is_due("log", LOG_EVERY_S, now):
                    self._read_log(training, clients, now=now)
                if not jobs_only and self._is_due("rules", _RULES_EVERY_S, now):
                    self._read_rules(run, training, clients)
            except FAULTS as error:
                log.warning("The page of run %s is incomplete: %s", run.run_id, error)
                fault = str(error)
            self._last = Reading(
                jobs=jobs,
                events=self._events if self._logs else None,
                rules=tuple(self._rules.values()),
                fault=fault,
            )
            return self._last

    def _is_due(self, what: str, every_s: float, now: float) -> bool:
        """Return whether something was not read for so long, and note that it is read now."""
        if now - self._read_at.get(what, 0.0) < every_s:
            return False
        self._read_at[what] = now
        return True

    def _jobs(self, run: RunRow, task_id: str, clients: AwsClients) -> list[Mapping[str, Any]]:
        kind = _KINDS.get(TaskId(task_id)) if task_id in set(TaskId) else None
        if kind is None:
            return []
        service, found = SageMakerJobs(clients, kind), []
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            name = job_name(
                dag_id=run.dag_id,
                run_id=run.run_id,
                task_id=task_id,
                attempt=attempt,
                longest=JOB_APIS[kind].longest_name,
                deployment=clients.deployment,
            )
            snapshot = self._ended.get(name) or self._described(service, name)
            if snapshot is None:
                break
            found.append(snapshot)
            if snapshot["succeeded"] or not snapshot["is_terminal"]:  # no other attempt follows it
                break
        return found

    def _described(self, service: SageMakerJobs, name: str) -> Mapping[str, Any] | None:
        snapshot: JobSnapshot | None = service.describe(name)
        if snapshot is None:
            return None
        data = snapshot.to_dict()
        if snapshot.is_terminal:
            self._ended[name] = data
        return data

    def _read_log(
        self, training: Sequence[Mapping[str, Any]], clients: AwsClients, *, now: float
    ) -> None:
        logs = clients.client("logs")
        for job in training:
            if job["started_at"] is None:
                continue
            reader = self._logs.setdefault(job["name"], _LogReader(job["name"]))
            for line in reader.new_lines(logs, now=now, is_over=job["is_terminal"]):
                self._events.read(line)

    def _read_rules(
        self, run: RunRow, training: Sequence[Mapping[str, Any]], clients: AwsClients
    ) -> None:
        objects = S3Objects(clients.client("s3"))
        for job in training:
            if job["started_at"] is None or (run.is_over and job["name"] in self._rules):
                continue
            for name in (DOCUMENT_NAME, LIVE_NAME):
                address = document_below(str(job["output_path"]), job["name"], name=name)
                if objects.exists(address):
                    self._rules[job["name"]] = json.loads(objects.read(address))
                    break


class Feeds:
    """The feeds of the runs that somebody watched last, and the connections that they read over."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._feeds: OrderedDict[tuple[str, str], TrainingFeed] = OrderedDict()
        self._clients: dict[str, tuple[float, AwsClients]] = {}

    def read(self, run: RunRow) -> Reading:
        """Return the state of a run's jobs.

        Raises:
            TrainingRunError: the run's connection is wrong.
        """
        return self._feed(run).read(run, self.clients(run))

    def costs(self, runs: Iterable[RunRow]) -> dict[tuple[str, str], float]:
        """Return what the newest running runs have cost so far, in USD, by DAG and run."""
        now = time.time()
        found = {}
        for run in islice((each for each in runs if not each.is_over), _MOST_LISTED):
            try:
                reading = self._feed(run).read(run, self.clients(run), jobs_only=True)
            except FAULTS as error:
                log.warning("What run %s costs is not known: %s", run.run_id, error)
                continue
            if reading.fault:
                continue
            amounts = [accrued_usd(job, now=now) for jobs in reading.jobs.values() for job in jobs]
            found[run.dag_id, run.run_id] = sum(each for each in amounts if each is not None)
        return found

    def _feed(self, run: RunRow) -> TrainingFeed:
        with self._lock:
            key = run.dag_id, run.run_id
            feed = self._feeds.setdefault(key, TrainingFeed())
            self._feeds.move_to_end(key)
            while len(self._feeds) > _MOST_FEEDS:
                self._feeds.popitem(last=False)
        return feed

    def clients(self, run: RunRow) -> AwsClients:
        """Return the clients of a run's connection; read anew every ten minutes, as a person may change it."""
        connection = ConnectionArguments.from_dict(
            run.result(TaskId.PREFLIGHT).get("connection") or {}
        )
        key = json.dumps(connection.to_dict(), sort_keys=True, default=repr)
        with self._lock:
            made_at, clients = self._clients.get(key, (0.0, None))
            if clients is None or time.monotonic() - made_at > _CLIENTS_LIVE_S:
                clients = AwsClients(connection)
                self._clients[key] = time.monotonic(), clients
            return clients
