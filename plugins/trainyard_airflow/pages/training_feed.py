"""`TrainingFeed`: jobs and log of one run, read from AWS at a rate independent of the number of viewers."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.cost.job_cost import sum_usd
from trainyard.errors import Finding, SpecError, TrainingRunError
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live.accrual import accrued_usd
from trainyard.runs.live.training_events import TrainingEvents
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.redaction import description_secrets, masked, masked_snapshot
from trainyard_airflow.hooks.training_log import log_pages, log_streams
from trainyard_airflow.jobs.task_jobs import TaskKey
from trainyard_airflow.triggers.rule_findings import DOCUMENT_NAME, LIVE_NAME, document_below

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from trainyard.runs.live.facts import RunRow

log = logging.getLogger(__name__)

_LOG_EVERY_S = 1.0
_JOBS_EVERY_S = 3.0
_LISTED_JOBS_EVERY_S = 10.0
_RULES_EVERY_S = 5.0
_STREAMS_EVERY_S = 10.0
_MOST_PAGES = 20  # of a log in one reading: 10,000 lines each at most
_MOST_ATTEMPTS = 50
_MOST_LISTED, _LISTED_WITHIN_S = 20, 3.0
_MOST_SCRAPED, _SCRAPED_WITHIN_S = 16, 5.0
_MOST_FEEDS, _FEEDS_LIVE_S = 32, 600.0
_CLIENTS_LIVE_S = 600.0
_TOKENS_LIVE_S = 12 * 3600.0  # of a log; CloudWatch rejects those that are older than 24 hours
_LATE_LINES_S = 60.0
"""Seconds after a job's end within which CloudWatch may still deliver its last lines."""
_GROUP = JOB_APIS[JobKind.TRAINING].log_group
# Short timeouts: a page polls again anyway, and a thread of the API server must not wait for long.
_IMPATIENT = {
    "connect_timeout": 3,
    "read_timeout": 10,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
FAULTS = (TrainingRunError, BotoCoreError, ClientError)


@dataclass(slots=True)
class LogReader:
    """Reader of the log of one job's first host, which has the lines of rank 0. It keeps its position in the log.

    Each start of a host creates a stream; earlier streams then get no more lines.

    Attributes:
        tokens: for each stream, oldest first, CloudWatch's token of the next page; None before the first read.
        listed_at: time of the last listing of the streams, epoch seconds.
        num_done: number of streams that are read to their end; they are the oldest ones.
        is_behind: whether the last read left lines for the next one.
        is_whole: whether the job has ended and all its lines are read.
    """

    job: str
    tokens: OrderedDict[str, str | None] = field(default_factory=OrderedDict)
    listed_at: float | None = None
    num_done: int = 0
    is_behind: bool = False
    is_whole: bool = False

    def new_lines(
        self, logs: Any, *, now: float, ended_at: float | None = None
    ) -> Iterator[LogLine]:
        """Yield the lines that are new since the last call.

        Args:
            logs: a boto3 client of CloudWatch Logs.
            now: epoch seconds.
            ended_at: the job's end; None while it runs.

        Raises:
            ClientError: the service rejected a call.
            BotoCoreError: the service did not answer.
        """
        if self.is_whole:
            return
        if self.listed_at is None or now - self.listed_at >= _STREAMS_EVERY_S or ended_at:
            self._list(logs)
            self.listed_at = now
        self.is_behind = False
        for place, stream in list(enumerate(self.tokens))[self.num_done :]:
            self.is_behind = yield from self._read(logs, stream)
            if self.is_behind:  # a later stream comes after this one
                break
            self.num_done = min(place + 1, len(self.tokens) - 1)
        is_settled = ended_at is not None and now - ended_at >= _LATE_LINES_S
        self.is_whole = is_settled and not self.is_behind

    def has_old_tokens(self, now: float) -> bool:
        """Return whether `tokens` are so old that CloudWatch may reject them; False once the whole log is read."""
        is_old = self.listed_at is not None and now - self.listed_at > _TOKENS_LIVE_S
        return is_old and not self.is_whole

    def _read(self, logs: Any, stream: str) -> Generator[LogLine, None, bool]:
        """Yield new lines of a stream, at most `_MOST_PAGES` pages; return whether there are more."""
        pages = log_pages(logs, group=_GROUP, stream=stream, token=self.tokens[stream])
        for events, token in islice(pages, _MOST_PAGES):
            is_last = token == self.tokens[stream]  # an empty page alone does not end a stream
            self.tokens[stream] = token
            for event in events:
                text = str(event["message"]).rstrip("\r\n")
                yield LogLine(
                    job=self.job, stream=stream, time_ms=int(event["timestamp"]), text=text
                )
            if is_last:
                return False
        return True

    def _list(self, logs: Any) -> None:
        for each in sorted(log_streams(logs, group=_GROUP, prefix=f"{self.job}/algo-1-")):
            self.tokens.setdefault(each, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """State of a run's jobs at one moment.

    Attributes:
        jobs: snapshots of each task's jobs, by task id, oldest first.
        events: events in the training's log; None if no training job has started.
        rules: newest rule verdicts of each training job that has some. They are the content of the job's
            rules.json, or of its rules-so-far.json while there is no rules.json.
        fault: reasons for missing parts; None if nothing is missing.
        has_all_jobs: whether the jobs of all tasks are present, even if other parts are missing.
    """

    jobs: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    events: TrainingEvents | None = None
    rules: tuple[Mapping[str, Any], ...] = ()
    fault: str | None = None
    has_all_jobs: bool = False

    def cost_usd(self, now: float) -> float | None:
        """Return the cost of all jobs so far in USD; None if a part of it is unknown."""
        known, is_complete = sum_usd(
            accrued_usd(job, now=now) for jobs in self.jobs.values() for job in jobs
        )
        return known if is_complete and self.has_all_jobs else None


@dataclass(slots=True)
class _KnownJob:
    """Last snapshot of a job, and the secrets to mask in its log."""

    snapshot: dict[str, Any]
    secrets: tuple[str, ...]


class TrainingFeed:
    """Reader of one run's jobs; ended jobs are read once. While one thread reads, other threads get the last state."""

    def __init__(self) -> None:
        self.used_at = time.monotonic()
        self._lock = Lock()
        self._read_at: dict[str, float] = {}
        self._known: dict[str, _KnownJob] = {}
        self._logs: dict[str, LogReader] = {}
        self._events = TrainingEvents()
        self._rules: dict[str, Mapping[str, Any]] = {}
        self._final_rules: set[str] = set()
        self._faults: dict[str, str] = {}
        self._last = RunReading(fault="the run's jobs are being read for the first time")

    def read(self, run: RunRow, clients: Clients, *, jobs_only: bool = False) -> RunReading:
        """Return the current state of the run's jobs, or the last known one while another thread reads.

        The parts of the state are the jobs of each task, the log, and the rules. A part that AWS rejects or does
        not return keeps its last state, and the result's `fault` has the reason.

        Args:
            run: the run from Airflow's database.
            clients: clients of the connections of the run's tasks.
            jobs_only: whether to read neither log nor rules; the state of the jobs may then be 10 s old instead of
                3 s.
        """
        self.used_at = time.monotonic()
        if not self._lock.acquire(blocking=False):
            return self._last
        try:
            now = time.time()
            jobs = {**self._last.jobs}
            if self._is_due("jobs", _LISTED_JOBS_EVERY_S if jobs_only else _JOBS_EVERY_S, now):
                for task_id in run.jobs:
                    with self._noting(_jobs_of(task_id)):
                        jobs[task_id] = self._jobs(run, task_id, clients.of(run, task_id))
            training = jobs.get(TaskId.TRAIN, ())
            if training and not jobs_only:
                self._read_training(run, training, clients, now=now)
            self._last = RunReading(
                jobs=jobs,
                events=self._events if self._logs else None,
                rules=tuple(self._rules.values()),
                fault="; ".join(self._faults.values()) or None,
                has_all_jobs=not any(_jobs_of(each) in self._faults for each in run.jobs),
            )
            return self._last
        finally:
            self._lock.release()

    def _read_training(
        self, run: RunRow, training: Sequence[Mapping[str, Any]], clients: Clients, *, now: float
    ) -> None:
        if self._is_due("log", _LOG_EVERY_S, now):
            with self._noting("the log"):
                self._read_log(training, clients.of(run, TaskId.TRAIN).client("logs"), now=now)
        if self._is_due("rules", _RULES_EVERY_S, now):
            with self._noting("the rules' findings"):
                objects = S3Objects(clients.of(run, TaskId.TRAIN).client("s3"))
                self._read_rules(training, objects)

    @contextmanager
    def _noting(self, part: str) -> Iterator[None]:
        """Catch and store the error if the `with` block cannot read a part of the page.

        Once the part can be read again, its stored error is removed.
        """
        try:
            yield
        except (*FAULTS, ValueError) as error:
            log.warning("A page lacks %s: %s", part, error)
            self._faults[part] = f"{part}: {error}"
        else:
            self._faults.pop(part, None)

    def _is_due(self, what: str, every_s: float, now: float) -> bool:
        """Return whether `what` was last read at least `every_s` seconds ago; if so, store `now` as its last read."""
        if now - self._read_at.get(what, 0.0) < every_s:
            return False
        self._read_at[what] = now
        return True

    def _jobs(self, run: RunRow, task_id: str, clients: AwsClients) -> list[Mapping[str, Any]]:
        """Return a task's jobs.

        Job names are derived from the task and the number of the attempt. If the task's XCom names another job, that
        job is added.
        """
        kind = run.kind_of(task_id)
        if kind is None:
            return []
        service = SageMakerJobs(clients, kind)
        found = list(self._attempts(run, task_id, service, clients))
        left = str(run.jobs[task_id])
        if all(each["name"] != left for each in found):
            found += [each for each in (self._job(service, left),) if each]
        return found

    def _attempts(
        self, run: RunRow, task_id: str, service: SageMakerJobs, clients: AwsClients
    ) -> Iterator[Mapping[str, Any]]:
        task = TaskKey(dag_id=run.dag_id, run_id=run.run_id, task_id=task_id)
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            name = task.job_name(service.kind, attempt, deployment=clients.deployment)
            snapshot = self._job(service, name)
            if snapshot is None:
                return
            yield snapshot
            if snapshot["succeeded"] or not snapshot["is_terminal"]:  # no other attempt follows it
                return

    def _job(self, service: SageMakerJobs, name: str) -> Mapping[str, Any] | None:
        known = self._known.get(name)
        if known and known.snapshot["is_terminal"]:
            return known.snapshot
        answer = service.description(name)
        if answer is None:
            return None
        snapshot = masked_snapshot(answer).to_dict()
        self._known[name] = _KnownJob(snapshot=snapshot, secrets=description_secrets(answer))
        return snapshot

    def _read_log(self, training: Sequence[Mapping[str, Any]], logs: Any, *, now: float) -> None:
        if any(each.has_old_tokens(now) for each in self._logs.values()):
            # The indices of the points depend on the log alone, so open pages keep theirs.
            self._logs, self._events = {}, TrainingEvents()
        for job in training:
            if job["started_at"] is None:
                continue
            name = job["name"]
            reader = self._logs.setdefault(name, LogReader(name))
            secrets = self._known[name].secrets
            for line in reader.new_lines(logs, now=now, ended_at=job["ended_at"]):
                text = masked(line.text, secrets)
                self._events.read(replace(line, text=text))
            if reader.is_behind:  # a later job comes after this one
                break

    def _read_rules(self, training: Sequence[Mapping[str, Any]], objects: S3Objects) -> None:
        for job in training:
            if job["started_at"] is None or job["name"] in self._final_rules:
                continue
            for name in (DOCUMENT_NAME, LIVE_NAME):
                address = document_below(str(job["output_path"]), job["name"], name=name)
                document = objects.json_or_none(address)
                if document is not None:
                    self._rules[job["name"]] = document
                    if name == DOCUMENT_NAME and job["is_terminal"]:
                        self._final_rules.add(job["name"])
                    break


def _jobs_of(task_id: str) -> str:
    return f"jobs of {task_id}"


class Clients:
    """AWS clients of the runs' connections; each connection is read again after ten minutes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[tuple[str | None, str | None], tuple[float, AwsClients]] = {}

    def of(self, run: RunRow, task_id: str) -> AwsClients:
        """Return the clients of a task's connection.

        If the task has pushed no connection, the connection of another task of the run is used. If no task has pushed
        one, `aws_default` is used.

        Raises:
            SpecError: the API server has no such connection.
            TrainingRunError: the connection is invalid.
        """
        others = iter(run.connections.values())
        left = run.connections.get(task_id) or next(others, {"aws_conn_id": "aws_default"})
        key = _text(left.get("aws_conn_id")), _text(left.get("region_name"))
        with self._lock:
            made_at, clients = self._made.get(key, (0.0, None))
            if clients is None or time.monotonic() - made_at > _CLIENTS_LIVE_S:
                clients = _made(*key)
                self._made[key] = time.monotonic(), clients
            return clients


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _made(aws_conn_id: str | None, region_name: str | None) -> AwsClients:
    try:
        if aws_conn_id is not None:
            BaseHook.get_connection(aws_conn_id)
    except AirflowNotFoundException as error:
        # Without this check, the provider would use the API server's own credentials.
        finding = Finding(
            where=f"connection {aws_conn_id!r}",
            what="does not exist for the API server",
            next_step="create it in Airflow's database or a secrets backend",
        )
        raise SpecError(finding) from error
    clients = AwsClients(
        ConnectionArguments(
            aws_conn_id=aws_conn_id, region_name=region_name, botocore_config=_IMPATIENT
        )
    )
    for service in ("sagemaker", "logs", "s3"):  # by one thread: a session makes one at a time
        clients.client(service)
    return clients


class Feeds:
    """Feeds of the recently viewed runs: at most 32, each for ten minutes after its last use."""

    def __init__(self) -> None:
        self.clients = Clients()
        self._lock = Lock()
        self._feeds: OrderedDict[tuple[str, str], TrainingFeed] = OrderedDict()

    def read(self, run: RunRow) -> RunReading:
        """Return the state of a run's jobs."""
        return self._feed(run).read(run, self.clients)

    def costs(self, runs: Iterable[RunRow]) -> dict[tuple[str, str], float | None]:
        """Return the costs so far in USD of the newest running runs, by DAG id and run id; None = unknown cost.

        A run without jobs costs 0. At most 20 runs with jobs are read, and after three seconds, no further run is
        read. Runs with jobs that are not read are omitted.
        """
        until, now = time.monotonic() + _LISTED_WITHIN_S, time.time()
        open_runs = [each for each in runs if not each.is_over]
        found: dict[tuple[str, str], float | None] = {
            (each.dag_id, each.run_id): 0.0 for each in open_runs if not each.jobs
        }
        for run in islice((each for each in open_runs if each.jobs), _MOST_LISTED):
            if time.monotonic() > until:
                break
            reading = self._feed(run).read(run, self.clients, jobs_only=True)
            found[run.dag_id, run.run_id] = reading.cost_usd(now)
        return found

    def readings(self, runs: Iterable[RunRow]) -> Iterator[tuple[RunRow, RunReading]]:
        """Yield running runs with the state of their jobs and logs.

        All running runs without jobs come first. Then the runs with jobs are read in the order of `runs`: at most
        16 of them, and no further one after five seconds. Runs with jobs that were not read are omitted.
        """
        until = time.monotonic() + _SCRAPED_WITHIN_S
        open_runs = [each for each in runs if not each.is_over]
        yield from ((each, RunReading(has_all_jobs=True)) for each in open_runs if not each.jobs)
        for run in islice((each for each in open_runs if each.jobs), _MOST_SCRAPED):
            if time.monotonic() > until:
                return
            yield run, self._feed(run).read(run, self.clients)

    def _feed(self, run: RunRow) -> TrainingFeed:
        with self._lock:
            key = run.dag_id, run.run_id
            feed = self._feeds.setdefault(key, TrainingFeed())
            self._feeds.move_to_end(key)
            oldest = time.monotonic() - _FEEDS_LIVE_S
            for other, each in list(self._feeds.items()):
                if other != key and (len(self._feeds) > _MOST_FEEDS or each.used_at < oldest):
                    del self._feeds[other]
        return feed
