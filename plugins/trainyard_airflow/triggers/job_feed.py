"""Shared feed of job states and log lines, for all followed jobs of one connection.

Polling a job individually costs one Describe and two log calls per poll, and all jobs share the account's rate limits.
One List call returns a hundred jobs, including ended jobs, and one FilterLogEvents call returns ten thousand lines.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from botocore.exceptions import ClientError

from trainyard.errors import TrainingRunError
from trainyard.job_status import TERMINAL_STATUSES, JobStatus
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.training_line import is_heartbeat
from trainyard_airflow.hooks.job_logs import host_of
from trainyard_airflow.triggers.answers import FAULTS, Answers, is_refusal
from trainyard_airflow.triggers.pace import Pace, jittered
from trainyard_airflow.triggers.renewed_clients import RenewedClients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from trainyard_airflow.hooks.aws_clients import ConnectionArguments

log = logging.getLogger(__name__)

FED = frozenset({JobKind.TRAINING, JobKind.PROCESSING})
"""Kinds that have a feed. A search has none, because only a Describe returns the counters of its trials."""
SHORTEST_S = 2.0
_OVERLAP_S = 10.0
"""Seconds by which listings overlap: LastModifiedTime has whole seconds, and listings lag behind by some seconds."""
_CENSUS_S = 60.0
"""Seconds between two searches for all followed jobs, which find the changes that other listings missed."""
_CREATED_EARLIER_S = 300.0
"""Seconds by which a job may have been created before its follower's `began_at`."""
_FURTHER_PAGES = 10
"""Pages of a search beyond one for each job that it has not found. Describing these jobs then costs less."""
_LOGS_EVERY_S = 5.0
_LOG_OVERLAP_MS = 15_000
"""Milliseconds by which a line may arrive later than it was printed."""
_LOG_PAGES = 5
_CLOSE_S = 10.0
"""Maximum seconds to wait until the feed's clients are closed."""
_LOG_ROUNDS_BEHIND = 4
_MOST_LINES = 2_000
_LINES_AT_ONCE = 500
_LOG_FAILURES_IN_A_ROW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """State of a job, as read from a listing.

    `is_listed` is False if no listing so far has the job. The other fields then have their defaults.
    """

    status: str = JobStatus.IN_PROGRESS
    secondary_status: str | None = None
    arn: str = ""
    is_listed: bool = True

    @property
    def is_terminal(self) -> bool:
        """True if the job has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def phase(self) -> str:
        """The job's secondary status, or its status if jobs of its kind have no secondary status."""
        return self.secondary_status or self.status


@dataclass(slots=True, kw_only=True, eq=False)
class Subscription:
    """State and unread log lines of a followed job.

    Attributes:
        began_at: approximate creation, epoch seconds; older jobs are listed less often.
        longest_s: maximum seconds between two listings.
        since_ms: time from which log lines are stored, epoch milliseconds; earlier lines are ignored.
        num_left_out: lines dropped since the follower last took lines.
        fault: (error of the last failed listing, seconds until the next listing); the follower clears it.
        refusal: set if the service rejects listings; the job must then be polled individually.
        heartbeat_at: time of the newest heartbeat, epoch seconds.
    """

    job_name: str
    reads_logs: bool
    since_ms: int
    began_at: float = field(default_factory=time.time)
    longest_s: float = 15.0
    state: FeedState | None = None
    lines: deque[str] = field(default_factory=deque)
    num_left_out: int = 0
    fault: tuple[Exception, float] | None = None
    refusal: Exception | None = None
    log_refusal: Exception | None = None
    heartbeat_at: float | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: dict[str, int] = field(default_factory=dict)

    def delay_s(self, shortest_s: float) -> float:
        """Return the seconds until the next listing of the job; `shortest_s` is the minimum."""
        phase = self.state.phase if self.state else None
        pace = Pace(shortest_s=shortest_s, longest_s=self.longest_s, ending_s=shortest_s)
        return pace.delay_s(age_s=time.time() - self.began_at, phase=phase)

    def note(self, state: FeedState) -> None:
        """Store a state from a listing, and notify the follower of a change."""
        if state != self.state:
            self.state = state
            self.news.set()

    def take_line(self, event: dict[str, Any]) -> None:
        """Store a log event; ignore it if it is too old or already stored, or if the follower reads no log.

        If there are already 2,000 unread lines, the event's line is dropped, and counted in `num_left_out`.
        """
        at_ms = int(event["timestamp"])
        if not self.reads_logs or at_ms < self.since_ms or event["eventId"] in self._seen:
            return
        self._seen[event["eventId"]] = at_ms
        if is_heartbeat(event["message"]):
            self.heartbeat_at = max(self.heartbeat_at or 0.0, at_ms / 1000)
        if len(self.lines) >= _MOST_LINES:
            self.num_left_out += 1
            return
        host = host_of(event["logStreamName"], job_name=self.job_name)
        self.lines.append(f"[{host}] {event['message']}")
        self.news.set()

    def read_to(self, at_ms: int, *, leaves_out: bool) -> None:
        """Store the time up to which the log was read, epoch milliseconds.

        Args:
            at_ms: the time. The next read starts 15 s before it.
            leaves_out: whether there may be older lines that were not read. If so, these lines are skipped, and
                `num_left_out` grows by 1.
        """
        self.since_ms = max(self.since_ms, at_ms - _LOG_OVERLAP_MS)
        self.num_left_out += leaves_out
        self._seen = {key: at for key, at in self._seen.items() if at >= self.since_ms}


class Budget:
    """Rate limit of the calls of all followers of a connection.

    Args:
        rate_per_s: calls per second.
        burst: calls that may be made at once after an idle time.
    """

    def __init__(self, *, rate_per_s: float, burst: int) -> None:
        self._gap_s, self._ahead_s = 1.0 / rate_per_s, burst / rate_per_s
        self._next_at = 0.0

    async def take(self) -> None:
        """Wait until the next call is allowed."""
        now = time.monotonic()
        self._next_at = max(self._next_at, now - self._ahead_s) + self._gap_s
        await asyncio.sleep(max(0.0, self._next_at - now))


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, JobKind], JobFeed]] = (
    WeakKeyDictionary()
)


@asynccontextmanager
async def subscribed(
    connection: ConnectionArguments, kind: JobKind, subscription: Subscription
) -> AsyncIterator[JobFeed]:
    """Subscribe to a feed while the `async with` block runs, and yield the feed.

    Each event loop has one feed per connection and kind of job. The first subscription creates the feed, and
    the end of the last one closes it.

    The end of the last subscription also waits until the feed's clients are closed. Otherwise the loop could
    end while a client is being opened, and the client's sockets would stay open.
    """
    known = _OF_LOOPS.setdefault(asyncio.get_running_loop(), {})
    key = repr(sorted(connection.to_dict().items())), kind
    feed = known.get(key)
    if feed is None:
        feed = known[key] = JobFeed(connection, kind)
    feed.add(subscription)
    try:
        yield feed
    finally:
        if feed.remove(subscription):
            if known.get(key) is feed:
                del known[key]
            await feed.close()


class JobFeed:
    """Feed of one connection's jobs of one kind; it lists jobs and reads their log group while any job is followed.

    Args:
        connection: the jobs' connection.
        kind: a kind with a feed (`FED`): training or processing jobs.
    """

    def __init__(self, connection: ConnectionArguments, kind: JobKind) -> None:
        self.budget = Budget(rate_per_s=5.0, burst=20)
        self._pages = Budget(rate_per_s=5.0, burst=20)
        self._connection, self._api = connection, JOB_APIS[kind]
        self._of_job: dict[str, set[Subscription]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted, self._log_wanted = asyncio.Event(), asyncio.Event()
        self._log_rounds_begun = self._log_rounds_ended = 0
        self._log_round = asyncio.Condition()
        self._refusal: Exception | None = None
        self._log_refusal: Exception | None = None
        self._shortest_s = SHORTEST_S
        self._changed_after = 0.0

    def add(self, subscription: Subscription) -> None:
        """Add the subscription of a job; several subscriptions of one job get the same updates."""
        self._of_job.setdefault(subscription.job_name, set()).add(subscription)
        subscription.refusal, subscription.log_refusal = self._refusal, self._log_refusal
        self._wanted.set()
        if not self._tasks:
            # A new context: in the first follower's context, its log would get the messages for all followers.
            for each in (self._watch_states, self._read_logs):
                task = asyncio.get_running_loop().create_task(each(), context=contextvars.Context())
                self._tasks.append(task)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription, and return whether it was the last one; the feed must then be closed."""
        others = self._of_job.get(subscription.job_name, set())
        others.discard(subscription)
        if not others:
            self._of_job.pop(subscription.job_name, None)
        return not self._of_job

    async def close(self) -> None:
        """End the feed, and wait at most 10 seconds for the end of its tasks."""
        for each in self._tasks:
            each.cancel()
        await asyncio.wait(self._tasks, timeout=_CLOSE_S)

    @property
    def _all(self) -> list[Subscription]:
        return [each for some in self._of_job.values() for each in some]

    @property
    def _delay_s(self) -> float:
        return min((each.delay_s(self._shortest_s) for each in self._all), default=1.0)

    @property
    def _log_pause_s(self) -> float:
        return _LOGS_EVERY_S * min(1.0, self._shortest_s / SHORTEST_S)

    async def last_lines(self, *, limit_s: float) -> bool:
        """Wait until the log has been read once more, at most `limit_s` seconds; return False after a timeout.

        Return True at once if the log cannot be read.
        """
        if self._log_refusal is not None:
            return True
        wanted = self._log_rounds_begun + 1
        self._log_wanted.set()
        try:
            async with asyncio.timeout(limit_s), self._log_round:
                await self._log_round.wait_for(lambda: self._log_rounds_ended >= wanted)
        except TimeoutError:
            return False
        return True

    async def _watch_states(self) -> None:
        clients = RenewedClients(self._connection, "sagemaker")
        where = f"jobs of connection {self._connection.aws_conn_id}"
        answers = Answers(where=where, logs=False)
        census_at = 0.0
        try:
            while self._all:
                self._wanted.clear()
                try:
                    async with clients:
                        if self._changed_after:
                            await self._list_changed(clients["sagemaker"])
                        is_census = time.monotonic() >= census_at or not self._changed_after
                        if is_census:  # also if it fails: until the next one, changes suffice
                            census_at = time.monotonic() + _CENSUS_S
                        sought = [each for each in self._all if is_census or each.state is None]
                        await self._find(clients["sagemaker"], sought)
                except FAULTS as error:
                    delay_s = answers.delay_s(error)
                    self._report_fault(error, delay_s)
                else:
                    answers.answered()
                    self._shortest_s = clients.aws.shortest_poll_s or SHORTEST_S
                    delay_s = jittered(self._delay_s)
                await wait_for_event(self._wanted, delay_s)
                # Followers that subscribe shortly after one another share a listing.
                await asyncio.sleep(min(0.25, self._shortest_s / 4))
        except TrainingRunError as error:
            self._end_states(error)
        except Exception as error:
            log.exception("Listing jobs failed")
            self._end_states(error)
        finally:
            await clients.close()

    def _report_fault(self, error: Exception, delay_s: float) -> None:
        for each in self._all:
            each.fault = error, delay_s
            each.news.set()

    async def _list_changed(self, sagemaker: Any) -> None:
        """Store the states of the jobs that have changed since the last listing."""
        asked: dict[str, Any] = {
            "LastModifiedTimeAfter": datetime.fromtimestamp(self._changed_after, UTC)
        }
        asked_at = 0.0
        while True:
            page = await self._page(sagemaker, asked)
            asked_at = asked_at or service_time(page)
            if not page.get("NextToken"):
                break
            asked["NextToken"] = page["NextToken"]
        self._changed_after = asked_at - _OVERLAP_S

    async def _find(self, sagemaker: Any, sought: Sequence[Subscription]) -> None:
        """Store the states of the jobs in `sought`. A job that is too old to be found is marked as not listed.

        The account's jobs are read from the newest one on, in any status. The filter `StatusEquals` is not used:
        AWS applies it after it has selected a page, so it would save no call.
        """
        missing = {each.job_name for each in sought if not (each.state and each.state.is_terminal)}
        oldest = min((each.began_at for each in sought), default=0.0) - _CREATED_EARLIER_S
        asked: dict[str, Any] = {
            "CreationTimeAfter": datetime.fromtimestamp(max(0.0, oldest), UTC),
            "SortBy": "CreationTime",
            "SortOrder": "Descending",
        }
        num_pages = 0
        while missing and num_pages < _FURTHER_PAGES + len(missing):
            page = await self._page(sagemaker, asked)
            num_pages += 1
            # Also if a later page fails: a job that no listing has is described.
            self._changed_after = self._changed_after or service_time(page) - _OVERLAP_S
            missing -= {each[self._api.name_key] for each in self._summaries(page)}
            if not page.get("NextToken"):
                break
            asked["NextToken"] = page["NextToken"]
        for each in sought:
            if each.job_name in missing:
                each.note(FeedState(is_listed=False))

    async def _page(self, sagemaker: Any, asked: dict[str, Any]) -> dict[str, Any]:
        """Return a page of a listing, and store the state of each listed job in the subscriptions to the job.

        `asked` has the parameters of the request. Requests after the first page wait for the rate limit.
        """
        if "NextToken" in asked:
            await self._pages.take()
        page: dict[str, Any] = await getattr(sagemaker, self._api.listing)(MaxResults=100, **asked)
        for each in self._summaries(page):
            for subscription in self._of_job.get(each[self._api.name_key], ()):
                subscription.note(self._state(each))
        return page

    def _summaries(self, page: dict[str, Any]) -> Sequence[dict[str, Any]]:
        summaries: Sequence[dict[str, Any]] = page.get(self._api.summaries_key, ())
        return summaries

    def _state(self, summary: dict[str, Any]) -> FeedState:
        return FeedState(
            status=summary[self._api.status_key],
            secondary_status=summary.get("SecondaryStatus"),
            arn=summary[self._api.arn_key],
        )

    async def _read_logs(self) -> None:
        clients = RenewedClients(self._connection, "logs")
        failures, rounds_behind, since_ms, token = 0, 0, 0, None
        try:
            while self._all:
                self._log_wanted.clear()
                readers = [each for each in self._all if each.reads_logs]
                if readers:
                    self._log_rounds_begun += 1
                    began_ms = int(time.time() * 1000)
                    if token is None:
                        since_ms = min(each.since_ms for each in readers)
                    try:
                        async with clients:
                            token = await self._log_pages(clients["logs"], since_ms, token)
                    except FAULTS as error:
                        failures, token = failures + 1, None
                        is_refused = isinstance(error, ClientError) and is_refusal(error)
                        if is_refused or failures >= _LOG_FAILURES_IN_A_ROW:
                            self._end_logs(error)
                            return
                    else:
                        failures, rounds_behind = 0, rounds_behind + 1 if token else 0
                        if token is None or rounds_behind >= _LOG_ROUNDS_BEHIND:
                            for each in readers:
                                each.read_to(began_ms, leaves_out=token is not None)
                            token, rounds_behind = None, 0
                    await self._end_log_round()
                await wait_for_event(
                    self._log_wanted, jittered(max(self._delay_s, self._log_pause_s))
                )
                await asyncio.sleep(self._log_pause_s / 4)
        except Exception as error:
            log.exception("Reading logs failed")
            self._end_logs(error)
        finally:
            await clients.close()

    async def _end_log_round(self) -> None:
        self._log_rounds_ended = self._log_rounds_begun
        async with self._log_round:
            self._log_round.notify_all()

    async def _log_pages(self, logs: Any, since_ms: int, token: str | None) -> str | None:
        """Read at most five pages of log lines, and pass each line to the followers of its job.

        Return the token of the next page, or None at the end.

        Raises:
            ClientError: the service rejected a call.
        """
        prefix = _common_start(min(self._of_job), max(self._of_job)) if self._of_job else ""
        for _ in range(_LOG_PAGES):
            asked = {"logGroupName": self._api.log_group, "startTime": since_ms, "limit": 10_000}
            if prefix:
                asked["logStreamNamePrefix"] = prefix
            if token:
                asked["nextToken"] = token
            try:
                page = await logs.filter_log_events(**asked)
            except ClientError as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException":
                    return None  # no job of the account has printed anything
                raise
            for number, event in enumerate(page.get("events", ())):
                job, _, _ = event["logStreamName"].partition(self._api.stream_mark)
                for each in self._of_job.get(job, ()):
                    each.take_line(event)
                if number % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                    await asyncio.sleep(0)
            token = page.get("nextToken")
            if token is None:
                return None
        return token

    def _end_states(self, error: Exception) -> None:
        self._refusal = error
        for each in self._all:
            each.refusal = error
            each.news.set()

    def _end_logs(self, error: Exception) -> None:
        self._log_refusal = error
        for each in self._all:
            each.log_refusal = error
            each.news.set()


def service_time(answer: dict[str, Any]) -> float:
    """Return the time at which the service responded, in epoch seconds.

    If the response has no valid date, return this machine's time.
    """
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).timestamp() if date else time.time()
    except ValueError:
        return time.time()


def _common_start(one: str, other: str) -> str:
    """Return the common prefix of two names; if they are the first and last of sorted names, all names share it."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[: min(len(one), len(other)) if length is None else length]


async def wait_for_event(event: asyncio.Event, limit_s: float | None) -> None:
    """Wait for an event, at most `limit_s` seconds; None = no limit."""
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        pass
