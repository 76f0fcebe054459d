"""Follower of one job to its end: it polls the job, forwards its log lines, and survives an unavailable endpoint."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from trainyard.errors import ContractError
from trainyard.runs.notifier import Notifier, interruption_notice
from trainyard.sagemaker_api.failures import is_unknown_job
from trainyard.sagemaker_api.snapshot import WAITING_STATUSES
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.units import format_usd
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.hooks.job_kinds import JOB_APIS, JobKind
from trainyard_airflow.hooks.notifications import notify_from_trigger
from trainyard_airflow.hooks.redaction import description_secrets, masked, masked_snapshot
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.hooks.shared_clients import shared_clients
from trainyard_airflow.triggers.answers import FAULTS, Answers, is_refusal
from trainyard_airflow.triggers.job_feed import (
    FeedState,
    JobFeed,
    Subscription,
    service_time,
    subscribed,
)
from trainyard_airflow.triggers.kill_job import note_follower, stop_job
from trainyard_airflow.triggers.log_tail import LogTail, newest_heartbeat
from trainyard_airflow.triggers.pace import Pace, jittered
from trainyard_airflow.triggers.renewed_clients import RenewedClients
from trainyard_airflow.triggers.stop_criteria import Patience, StopReason, reason_to_stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot

log = logging.getLogger(__name__)

_LOG_FAILURES_IN_A_ROW = 8
_LAST_LINES_S = 1.5
_SILENCE_SHARE = 0.25
_UNLISTED_S = 15.0
VERSION = 1
"""Version of a trigger's arguments in Airflow's database; a release reads all versions (docs/adr/0057)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A job to follow, with the settings of its follower. JSON-safe through `to_dict`.

    Attributes:
        poll_interval_s: longest time between two polls, in seconds.
        stream_logs: whether to forward the log lines of all hosts.
        patience: limits on silence and on the wait for instances, after which the job is stopped.
        notifier: recipient of messages on spot interruptions, or None.
        has_secrets: whether the job's request has values to mask in its log; they are read from the service.
    """

    kind: JobKind
    job_name: str
    connection: ConnectionArguments
    poll_interval_s: float = 15.0
    stream_logs: bool = True
    patience: Patience = field(default_factory=Patience)
    notifier: Notifier | None = None
    has_secrets: bool = True

    @property
    def wants_lines(self) -> bool:
        """True if the job's log lines are needed, to forward them or as heartbeats."""
        return self.stream_logs or bool(self.patience.heartbeat_timeout_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return {
            "v": VERSION,
            "kind": str(self.kind),
            "job_name": self.job_name,
            "poll_interval_s": self.poll_interval_s,
            "stream_logs": self.stream_logs,
            "patience": self.patience.to_dict(),
            "notifier": self.notifier.to_dict() if self.notifier else None,
            "has_secrets": self.has_secrets,
            "connection": self.connection.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the job from the result of `to_dict` of this or another release.

        Unknown keys of later releases are ignored; missing keys have their defaults. In version 0 the members of the
        connection were on the top level.

        Raises:
            KeyError: the kind or the name of the job is missing.
            ValueError: the kind is unknown to this release, or a member has an invalid value.
            TypeError: a member has a wrong type.
        """
        return cls(
            kind=JobKind(data["kind"]),
            job_name=_text(data["job_name"]),
            poll_interval_s=float(data.get("poll_interval_s", 15.0)),
            stream_logs=bool(data.get("stream_logs", True)),
            patience=Patience.from_dict(data.get("patience") or {}),
            notifier=Notifier.from_dict(data.get("notifier")),
            has_secrets=bool(data.get("has_secrets", True)),
            connection=ConnectionArguments.from_dict(data.get("connection", data)),
        )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"job_name must be a text, got {value!r}")
    return value


async def follow_job(followed: Followed, *, follower: str | None = None) -> JobSnapshot:
    """Return the job's final snapshot, without a time limit; log its lines to this module's logger.

    - If the service does not answer, throttles, fails or reports expired credentials, the poll is repeated with growing
      waits and without limit; the caller decides how long to wait. Each poll after an error reads the connection again.
    - If the log cannot be read, one warning is logged, and the job is followed without its log.
    - If the job exceeds its limits on silence or on waiting for instances, it is stopped with a tag that has the
      reason, and then followed to its end. The same applies to a search that would exceed its cost limit.
    - For a search, its trials are logged instead of lines.

    Args:
        followed: the job.
        follower: the trigger that follows the job, stored as a tag of the job (`handover`); None in a worker.

    Raises:
        TrainingRunError: the service repeatedly rejected describing the job (no permission, no such job).
    """
    look = _look_class(followed.kind)(followed, unnoted_follower=follower)
    try:
        return await _follow(followed, look)
    finally:
        await look.clients.close()


async def follow_by_feed(
    followed: Followed, *, follower: str | None, began_at: float, log_since: float
) -> FeedState | JobSnapshot:
    """Return the job's end from the feed that all followers of the connection in this loop share.

    The behaviour is that of `follow_job`, with a fraction of the calls: a job is described only if more than its status
    is needed. If the service rejects listings, or if the kind has no feed, the job is followed by `follow_job`'s polls.

    Args:
        followed: the job.
        follower: the trigger that takes over the job from another triggerer, stored on the job; None for a new job.
        began_at: approximate start of the job, epoch seconds.
        log_since: earlier log lines are not forwarded, epoch seconds.

    Raises:
        TrainingRunError: the service repeatedly rejected describing the job.
    """
    look = FedLook(followed, unnoted_follower=follower)
    subscription = Subscription(
        job_name=followed.job_name,
        reads_logs=followed.wants_lines,
        since_ms=int(log_since * 1000),
        began_at=began_at,
        longest_s=followed.poll_interval_s,
    )
    look.subscription = subscription
    try:
        async with subscribed(followed.connection, followed.kind, subscription) as feed:
            look.feed = feed
            return await look.end()
    except _NotFedError:
        return await follow_job(followed, follower=follower)
    finally:
        await look.clients.close()


class _NotFedError(Exception):
    """The service rejects listings."""


def _look_class(kind: JobKind) -> type[Look]:
    if kind is JobKind.TUNING:
        from trainyard_airflow.triggers.search import SearchLook

        return SearchLook
    if kind is JobKind.AUTOML:
        from trainyard_airflow.triggers.automl import AutoMLLook

        return AutoMLLook
    return Look


async def _follow(followed: Followed, look: Look) -> JobSnapshot:
    answers = Answers(where=f"job {followed.job_name}")
    while True:
        try:
            async with look.clients:
                snapshot = await look.now()
                answers.answered()
                if snapshot.is_terminal:
                    await look.drain_logs()
                    return snapshot
                await look.give_up_on(snapshot)
        except FAULTS as error:
            delay = answers.delay_s(error)
        else:
            age_s = time.time() - (snapshot.created_at or time.time())
            phase = snapshot.secondary_status or snapshot.status
            delay = jittered(look.pace.delay_s(age_s=age_s, phase=phase))
        await asyncio.sleep(delay)


def _starts(snapshot: JobSnapshot) -> int:
    """Return how often instances began to train; each begin creates new log streams."""
    return sum(each.status == "Training" for each in snapshot.transitions)


@dataclass(slots=True)
class Look:
    """Open clients and reading positions of one followed job; clients are renewed after a failure."""

    followed: Followed
    unnoted_follower: str | None = None
    clients: RenewedClients = field(init=False)
    tail: LogTail = field(init=False)
    phase: str | None = None
    secrets: tuple[str, ...] = ()
    reads_logs: bool = field(init=False)
    log_failures: int = 0
    now_s: float = 0.0
    described: dict[str, Any] = field(default_factory=dict)
    num_interruptions: int = 0
    logged_tenth: int = 0

    def __post_init__(self) -> None:
        self.reads_logs = self.followed.wants_lines
        services = ("sagemaker", "logs") if self.reads_logs else ("sagemaker",)
        self.clients = RenewedClients(self.followed.connection, *services)
        group = JOB_APIS[self.followed.kind].log_group
        self.tail = LogTail(group=group, job_name=self.followed.job_name)

    @property
    def pace(self) -> Pace:
        """Poll intervals, from the connection's extra `trainyard.shortest_poll_s` and the task's `poll_interval_s`."""
        longest_s = self.followed.poll_interval_s
        shortest_s = self.clients.aws.shortest_poll_s
        if shortest_s is None:
            return Pace(longest_s=longest_s)
        return Pace(shortest_s=shortest_s, longest_s=longest_s)

    @property
    def sagemaker(self) -> Any:
        """The open client of SageMaker."""
        return self.clients["sagemaker"]

    async def now(self) -> JobSnapshot:
        """Return the job's current snapshot; log a change of status and the new lines."""
        snapshot = await self._describe()
        await note_follower(self.sagemaker, snapshot.arn, self.unnoted_follower)
        self.unnoted_follower = None
        changed = self._log_phase(
            snapshot.secondary_status or snapshot.status, snapshot.status_message or ""
        )
        await self._tell_interruptions(snapshot)
        if self.reads_logs:
            self.tail.num_streams = snapshot.instance_count * max(1, _starts(snapshot))
            await self._pass_logs_on(look_for_streams=changed)
        return snapshot

    def _log_phase(self, phase: str, message: str) -> bool:
        """Log the phase if it has changed, and return whether it has."""
        if phase == self.phase:
            return False
        log.info("Job %s: %s %s", self.followed.job_name, phase, message)
        self.phase = phase
        return True

    async def _tell_interruptions(self, snapshot: JobSnapshot) -> None:
        """Send notifications of the spot interruptions since the last poll, unless an earlier follower sent them."""
        told, self.num_interruptions = self.num_interruptions, snapshot.interruptions
        for number in range(told + 1, snapshot.interruptions + 1):
            notice = interruption_notice(
                job_name=snapshot.name,
                number=number,
                instances=f"{snapshot.instance_count} x {snapshot.instance_type}",
            )
            await notify_from_trigger(self.clients.aws, self.followed.notifier, notice)

    async def give_up_on(self, snapshot: JobSnapshot) -> None:
        """Stop a job that exceeds its limits on silence or on waiting for instances.

        Silence is not evaluated while the job's log has not been read to its end, or is not read at all.
        """
        self.log_cost(snapshot.billed_seconds_at(self.now_s))
        verdict = self._verdict(snapshot)
        if verdict is not None and verdict.cause is StopCause.HUNG:
            # A newer heartbeat may be in the stream of a host that had none when streams were last listed.
            await self._pass_logs_on(look_for_streams=True)
            verdict = self._verdict(snapshot)
        if verdict is not None:
            log.warning("Job %s is stopped: %s", snapshot.name, verdict.text)
            await stop_job(self.followed, tag=verdict.cause.tag)

    def log_cost(self, billed_s: float) -> None:
        """Log the cost so far of a job under a cost cap, once per tenth of the cap."""
        limit_s, usd_per_s = self.followed.patience.max_billed_s, self.followed.patience.usd_per_s
        if not limit_s or usd_per_s is None:
            return
        tenth = min(10, int(10 * billed_s / limit_s))
        if tenth > self.logged_tenth:
            self.logged_tenth = tenth
            log.info(
                "Job %s: cost so far at most %s; it is stopped at %s for its cost cap",
                self.followed.job_name,
                format_usd(billed_s * usd_per_s),
                format_usd(limit_s * usd_per_s),
            )

    def _verdict(self, snapshot: JobSnapshot) -> StopReason | None:
        return reason_to_stop(
            snapshot,
            patience=self.followed.patience,
            heard_at=self._heard_at,
            now=self.now_s,
        )

    @property
    def _heard_at(self) -> float | None:
        is_heard = self.reads_logs and not self.tail.is_behind
        return self.tail.heard_at if is_heard else None

    async def drain_logs(self) -> None:
        """Forward the remaining log lines."""
        while self.reads_logs and await self._pass_logs_on(look_for_streams=True):
            pass

    async def _describe(self) -> JobSnapshot:
        api = JOB_APIS[self.followed.kind]
        describe = getattr(self.sagemaker, f"describe_{api.method}{api.version}")
        try:
            answer = await describe(**{api.name_key: self.followed.job_name})
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                log.warning("The service has no job %s (yet)", self.followed.job_name)
            raise
        if not answer.get(f"{api.noun}Status"):
            raise ContractError("the service described a job without a status", got=list(answer))
        self.described, self.now_s = answer, service_time(answer)
        self.secrets = description_secrets(answer)
        return masked_snapshot(answer)

    async def _pass_logs_on(self, *, look_for_streams: bool) -> int:
        """Log the new lines of all hosts, without the job's secrets, and return how many there were."""
        count = 0
        try:
            async for line in self.tail.new_lines(
                self.clients["logs"], look_for_streams=look_for_streams
            ):
                count += 1
                if self.followed.stream_logs:
                    log.info("%s", masked(line, self.secrets))
        except FAULTS as error:
            self._count_log_failure(error)
        else:
            self.log_failures = 0
        return count

    def _count_log_failure(self, error: Exception) -> None:
        """Continue without the log if reading it was rejected or failed 8 times in a row; otherwise raise the error."""
        self.log_failures += 1
        is_refused = isinstance(error, ClientError) and is_refusal(error)
        if not is_refused and self.log_failures < _LOG_FAILURES_IN_A_ROW:
            raise error
        self.reads_logs = False
        log.warning(
            "The log of job %s cannot be read (%s): it is followed without its log lines",
            self.followed.job_name,
            error,
        )


@dataclass(slots=True)
class FedLook(Look):
    """Follower that the shared feed drives: it describes the job only if more than its status is needed."""

    subscription: Subscription = field(init=False)
    feed: JobFeed = field(init=False)
    snapshot: JobSnapshot | None = None
    described_in: FeedState | None = None
    is_deaf: bool = False
    due_at: float = math.inf
    """Earliest time at which the job can reach its cost cap, by this machine's monotonic clock."""
    listens_since: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        super(
            FedLook, self
        ).__post_init__()  # in a slotted dataclass, `super()` without arguments fails
        self.reads_logs = False  # the feed reads them
        self.clients = RenewedClients(self.followed.connection, "sagemaker")

    async def end(self) -> FeedState | JobSnapshot:
        """Return the job's final state or snapshot.

        Raises:
            TrainingRunError: the service repeatedly rejected describing the job.
            _NotFedError: the service rejects listings.
        """
        answers = Answers(where=f"job {self.followed.job_name}")
        while True:
            self._tell_faults()
            state = self.subscription.state
            delay_s: float | None = None
            try:
                if state is not None and (ended := await self._take(state)) is not None:
                    return ended
                answers.answered()
            except FAULTS as error:
                delay_s = answers.delay_s(error)
            self._pass_lines_on()
            self._log_cost_meanwhile()
            await self._wait(delay_s)

    async def _wait(self, delay_s: float | None) -> None:
        """Wait for an update of the feed, at most until the next limit may apply; after a fault, sleep `delay_s`."""
        if delay_s is not None:
            await asyncio.sleep(delay_s)
            return
        patience_s = self.followed.patience.heartbeat_timeout_s
        limits = [patience_s * _SILENCE_SHARE] if patience_s else []
        if self.subscription.state is not None and not self.subscription.state.is_listed:
            limits.append(_UNLISTED_S)
        if self.followed.patience.max_wait_s is not None:
            limits.append(min(60.0, max(1.0, self.followed.patience.max_wait_s * _SILENCE_SHARE)))
        if self.due_at < math.inf:
            tenth_s = (self.followed.patience.max_billed_s or 0.0) / 10
            limits.append(max(1.0, min(tenth_s, self.due_at - time.monotonic())))
        try:
            async with asyncio.timeout(min(limits, default=None)):
                await self.subscription.news.wait()
        except TimeoutError:
            pass
        self.subscription.news.clear()

    def _tell_faults(self) -> None:
        told, self.subscription.fault = self.subscription.fault, None
        if told is not None:
            log.warning("No answer from the service (%s); retry in %.0f s", *told)
        if self.subscription.refusal is not None:
            raise _NotFedError
        refused, self.subscription.log_refusal = self.subscription.log_refusal, None
        if refused is not None and self.followed.wants_lines:
            self.is_deaf = True
            log.warning(
                "The log of job %s cannot be read (%s): it is followed without its log lines",
                self.followed.job_name,
                refused,
            )

    async def _take(self, state: FeedState) -> FeedState | JobSnapshot | None:
        """Process a state of the feed: tag and describe the job if needed; return its end, or None if it continues."""
        if self._is_to_be_described(state):
            await self.feed.budget.take()
            async with self.clients:
                self.snapshot = await self.now()
                self.described_in = state
                self.due_at = self._cap_due_at(self.snapshot)
                if not self.snapshot.is_terminal:
                    if self._is_silent(state):
                        await self._listen_again()
                    await self.give_up_on(self.snapshot)
        elif self.unnoted_follower is not None and not state.is_terminal:
            await self.feed.budget.take()
            async with self.clients:
                await note_follower(self.sagemaker, state.arn, self.unnoted_follower)
                self.unnoted_follower = None
        if self.snapshot is not None and self.snapshot.is_terminal:
            await self._last_lines()
            return self.snapshot
        self._log_phase(state.phase, "")
        if not state.is_terminal:
            return None
        await self._last_lines()
        return state

    def _is_to_be_described(self, state: FeedState) -> bool:
        """Return whether the job must be described, because the feed's state is not enough.

        That is so for secrets in the log, spot notifications, limits on wait and cost, a silent job, and a job that is
        missing from the listing.
        """
        if not state.is_listed:
            return True
        if self.snapshot is None and self.followed.has_secrets and self.followed.wants_lines:
            return True
        patience = self.followed.patience
        if time.monotonic() >= self.due_at:
            return True
        limits = (self.followed.notifier, patience.max_wait_s, patience.max_billed_s)
        needs_each = any(each is not None for each in limits)
        if needs_each and (state != self.described_in or self._waits(state)):
            return True
        return self._is_silent(state)

    def _cap_due_at(self, snapshot: JobSnapshot) -> float:
        """Return the earliest time at which the job can reach its cost cap, by the monotonic clock; otherwise infinity.

        A wait for instances is not billed, and ends with a change of state.
        """
        limit_s = self.followed.patience.max_billed_s
        is_billed = snapshot.secondary_status not in WAITING_STATUSES
        if limit_s is None or snapshot.status != "InProgress" or not is_billed:
            return math.inf
        return time.monotonic() + limit_s - snapshot.billed_seconds_at(self.now_s)

    def _log_cost_meanwhile(self) -> None:
        """Log the cost so far by this machine's clock, without a call of the service."""
        limit_s = self.followed.patience.max_billed_s
        if limit_s is not None and self.due_at < math.inf:
            self.log_cost(limit_s - (self.due_at - time.monotonic()))

    def _waits(self, state: FeedState) -> bool:
        return self.followed.patience.max_wait_s is not None and state.phase not in {
            "Training",
            "Uploading",
        }

    def _is_silent(self, state: FeedState) -> bool:
        """Return whether the feed had no heartbeat for `heartbeat_timeout_s`; the job's own streams are read then."""
        limit_s = self.followed.patience.heartbeat_timeout_s
        if not limit_s or self.is_deaf or state.phase != "Training":
            return False
        heard_at = max(self.subscription.heard_at or 0.0, self.listens_since)
        return time.time() - heard_at >= limit_s

    async def _pass_logs_on(self, *, look_for_streams: bool) -> int:  # noqa: ARG002  # as of a job by itself
        """Return 0: the feed reads the lines, and `_listen_again` has read a silent job's streams."""
        return 0

    async def _listen_again(self) -> None:
        """Read the last lines of the job's streams, because the feed may be behind or have begun after a heartbeat."""
        self.listens_since = time.time()
        async with shared_clients(self.followed.connection, "logs") as clients:
            heard_at = await newest_heartbeat(
                clients["logs"], group=self.tail.group, job_name=self.followed.job_name
            )
        if heard_at is not None:
            self.subscription.heard_at = max(self.subscription.heard_at or 0.0, heard_at)

    @property
    def _heard_at(self) -> float | None:
        return self.subscription.heard_at

    async def _last_lines(self) -> None:
        if self.followed.wants_lines and not await self.feed.last_lines(limit_s=_LAST_LINES_S):
            log.warning(
                "Lines of job %s may be missing here; its log group %s has all",
                self.followed.job_name,
                self.tail.group,
            )
        self._pass_lines_on()

    def _pass_lines_on(self) -> None:
        """Log the feed's lines without the job's secrets; if it has secrets, not before they are known."""
        if self.followed.has_secrets and self.snapshot is None:
            return
        lines = self.subscription.lines
        while lines:
            line = lines.popleft()
            if self.followed.stream_logs:
                log.info("%s", masked(line, self.secrets))
        left_out, self.subscription.num_left_out = self.subscription.num_left_out, 0
        if left_out and self.followed.stream_logs:
            log.warning(
                "Lines of job %s are left out here (%d or more): CloudWatch has them, by the task's link",
                self.followed.job_name,
                left_out,
            )
