"""Followers of one job: they poll it to its end, forward its log, and survive service failures."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.snapshot import WAITING_STATUSES
from trainyard_airflow.hooks.redaction import masked
from trainyard_airflow.hooks.shared_clients import shared_clients
from trainyard_airflow.triggers.answers import FAULTS, Answers
from trainyard_airflow.triggers.job_feed import (
    FeedState,
    JobFeed,
    Subscription,
    subscribed,
    wait_for_event,
)
from trainyard_airflow.triggers.kill_job import note_follower
from trainyard_airflow.triggers.log_tail import newest_heartbeat
from trainyard_airflow.triggers.look import Look
from trainyard_airflow.triggers.pace import jittered
from trainyard_airflow.triggers.renewed_clients import RenewedClients

if TYPE_CHECKING:
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.triggers.followed import Followed

log = logging.getLogger(__name__)

_LAST_LINES_S = 1.5
_SILENCE_SHARE = 0.25
_UNLISTED_S = 15.0


async def follow_job(followed: Followed, *, follower: str | None = None) -> JobSnapshot:
    """Follow the job to its end without a time limit, log its lines, and return its final snapshot.

    - If the service does not answer, throttles, fails or rejects the credentials, the poll is repeated with growing
      waits and without limit; the caller decides how long to wait. Each poll after an error reads the connection again.
    - If the log cannot be read, one warning is logged, and the job is followed without its log.
    - If the job exceeds one of its limits (`Patience`), it is tagged with the reason, stopped, and then followed to its
      end. The same applies to a search that would exceed its cost limit.
    - For a search, its trials are logged instead of log lines.

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
    """Follow the job through a shared feed; return the job's final state or snapshot.

    All followers of a connection in this event loop share the feed.

    The behavior is that of `follow_job`, with a fraction of the calls: a job is described only if more than
    its status is needed. If the service rejects listings, this function continues as `follow_job`.

    Args:
        followed: the job.
        follower: identity of the trigger that follows the job, stored as a tag of the job (`handover`). With
            None no tag is stored. Pass None if no other triggerer can have followed the job yet.
        began_at: approximate start of the job, epoch seconds.
        log_since: time from which log lines are forwarded, epoch seconds.

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
    """The service rejects listings, so the shared feed cannot report on the job."""


def _look_class(kind: JobKind) -> type[Look]:
    if kind in (JobKind.TUNING, JobKind.AUTOML):
        from trainyard_airflow.triggers.search import AutoMLLook, SearchLook

        return SearchLook if kind is JobKind.TUNING else AutoMLLook
    return Look


async def _follow(followed: Followed, look: Look) -> JobSnapshot:
    answers = Answers(where=f"job {followed.job_name}")
    while True:
        try:
            async with look.clients:
                snapshot = await look.now()
                answers.described()
                if snapshot.is_terminal:
                    await look.drain_logs()
                    return snapshot
                await look.give_up_on(snapshot)
        except FAULTS as error:
            delay = answers.delay_s(error)
        else:
            answers.answered()
            age_s = time.time() - (snapshot.created_at or time.time())
            phase = snapshot.secondary_status or snapshot.status
            delay = jittered(look.pace.delay_s(age_s=age_s, phase=phase))
        await asyncio.sleep(delay)


@dataclass(slots=True)
class FedLook(Look):
    """Follower of a job through a `JobFeed`, which reports the job's status and log lines.

    All followers of the same connection and kind of job in this event loop share the feed. This follower calls
    Describe only if it needs more than the job's status.
    """

    subscription: Subscription = field(init=False)
    feed: JobFeed = field(init=False)
    answers: Answers = field(init=False)
    snapshot: JobSnapshot | None = None
    described_in: FeedState | None = None
    described_at: float = field(default_factory=time.monotonic)
    """Time of the last Describe, or of the follower's start, by this machine's monotonic clock."""
    is_deaf: bool = False
    """True if the service rejects that the feed reads logs."""
    is_log_read: bool = True
    """False if the last try to read the job's own log has failed."""
    due_at: float = math.inf
    """Earliest time at which the job can reach its cost cap or its plan's stop, by this machine's monotonic clock."""
    listens_since: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        super(
            FedLook, self
        ).__post_init__()  # in a slotted dataclass, `super()` without arguments fails
        self.reads_logs = False  # the feed reads them
        self.clients = RenewedClients(self.followed.connection, "sagemaker")
        self.answers = Answers(where=f"job {self.followed.job_name}")

    async def end(self) -> FeedState | JobSnapshot:
        """Return the job's final state from the feed, or its final snapshot if a Describe call has shown the end.

        Raises:
            TrainingRunError: the service repeatedly rejected describing the job.
            _NotFedError: the service rejects listings.
        """
        while True:
            self._report_faults()
            if self.subscription.state is None and self._is_overdue:
                self.subscription.note(FeedState(is_listed=False))  # the listings may be throttled
            state = self.subscription.state
            delay_s: float | None = None
            try:
                if state is not None and (ended := await self._take(state)) is not None:
                    return ended
                self.answers.answered()
            except FAULTS as error:
                delay_s = self.answers.delay_s(error)
            self._pass_lines_on()
            self._log_cost_meanwhile()
            await self._wait(delay_s)

    async def _wait(self, delay_s: float | None) -> None:
        """Wait for an update of the feed, or until the next check of the job without an update is due.

        Such a check stops the job if it exceeds a limit on silence, waiting time or cost, or if a window of its
        training plan is about to end. The check also covers a job that is in no listing.

        After a failed call, sleep `delay_s` seconds instead; None = no call failed.
        """
        if delay_s is not None:
            await asyncio.sleep(delay_s)
            return
        patience_s = self.followed.patience.heartbeat_timeout_s
        limits = [patience_s * _SILENCE_SHARE] if patience_s else []
        if self.subscription.state is None or not self.subscription.state.is_listed:
            limits.append(max(1.0, self.described_at + _UNLISTED_S - time.monotonic()))
        if self.followed.patience.max_wait_s is not None:
            limits.append(min(60.0, max(1.0, self.followed.patience.max_wait_s * _SILENCE_SHARE)))
        if self.due_at < math.inf:
            tenth_s = (self.followed.patience.max_billed_s or math.inf) / 10
            limits.append(max(1.0, min(tenth_s, self.due_at - time.monotonic())))
        await wait_for_event(self.subscription.news, min(limits, default=None))
        self.subscription.news.clear()

    def _report_faults(self) -> None:
        fault, self.subscription.fault = self.subscription.fault, None
        if fault is not None:
            log.warning("No answer from the service (%s); retry in %.0f s", *fault)
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
        """Process a state of the feed: tag and describe the job if needed.

        Return the job's final state or snapshot, or None while the job runs.
        """
        if self._is_to_be_described(state):
            await self.feed.budget.take()
            async with self.clients:
                await self._check(state)
        elif self.unnoted_follower is not None and not state.is_terminal:
            await self.feed.budget.take()
            async with self.clients:
                await note_follower(self.sagemaker, state.arn, self.unnoted_follower)
                self.unnoted_follower = None
        if self.snapshot is not None and self.snapshot.is_terminal:
            await self._last_lines()
            return self.snapshot
        if state.is_listed:
            self._log_phase(state.phase, "")
        if not state.is_terminal:
            return None
        await self._last_lines()
        return state

    async def _check(self, state: FeedState) -> None:
        """Describe the job, and stop it if it exceeds one of its limits.

        The check counts as done only if all its calls succeed. After a failed call, such as a rejected stop, it is
        due again.
        """
        self.snapshot = snapshot = await self.now()
        self.answers.described()
        described_at, listens_since = time.monotonic(), self.listens_since
        if snapshot.created_at is not None:
            self.subscription.began_at = snapshot.created_at
        due_at = self._next_due_at(snapshot)
        if not snapshot.is_terminal:
            if self._is_silent(snapshot.secondary_status):
                began = time.time()
                self.is_log_read = await self._listen_again()
                listens_since = began if self.is_log_read else listens_since
            await self.give_up_on(snapshot)
        self.described_in, self.described_at = state, described_at
        self.due_at, self.listens_since = due_at, listens_since

    def _is_to_be_described(self, state: FeedState) -> bool:
        """Return whether the job must be described, because the feed's state is not enough.

        The reasons are secrets in the log, spot notifications, limits on wait and cost, training plans, missing
        heartbeats, and a job that is in no listing.
        """
        if not state.is_listed and (state != self.described_in or self._is_overdue):
            return True
        if self.snapshot is None and self.followed.has_secrets and self.followed.wants_lines:
            return True
        patience = self.followed.patience
        if time.monotonic() >= self.due_at:
            return True
        limits = (self.followed.notifier, patience.max_wait_s, patience.max_billed_s)
        needs_each = any(each is not None for each in limits) or bool(patience.plan_stops)
        if needs_each and (state != self.described_in or self._waits(state)):
            return True
        return self._is_silent(state.phase)

    @property
    def _is_overdue(self) -> bool:
        """True if at least 15 seconds (`_UNLISTED_S`) have passed since the last Describe of the job.

        Before the first Describe, the time counts from the follower's start. If the property is true, a job that is
        in no listing of the feed must be described.
        """
        return time.monotonic() >= self.described_at + _UNLISTED_S

    def _next_due_at(self, snapshot: JobSnapshot) -> float:
        """Return the monotonic time at which the job can reach its cost cap or its training plan's stop.

        The result is infinity if the job can reach neither. It is also infinity while the job waits for instances,
        because the wait is not billed. After the wait the job has another state, so it is described again and the
        time is calculated again.
        """
        patience = self.followed.patience
        is_billed = snapshot.secondary_status not in WAITING_STATUSES
        if snapshot.status != JobStatus.IN_PROGRESS or not is_billed:
            return math.inf
        left_s = [each - self.now_s for each in patience.plan_stops if each > self.now_s]
        if patience.max_billed_s is not None:
            left_s.append(patience.max_billed_s - snapshot.billed_seconds_at(self.now_s))
        return time.monotonic() + min(left_s, default=math.inf)

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

    def _is_silent(self, phase: str | None) -> bool:
        """Return whether the feed has read no heartbeat of the job for at least `heartbeat_timeout_s` seconds.

        If so, `_check` reads the newest heartbeat from the job's own log. The result is False without a timeout,
        after the service rejected that the feed reads logs, and in any `phase` other than `Training`.
        """
        limit_s = self.followed.patience.heartbeat_timeout_s
        if not limit_s or self.is_deaf or phase != "Training":
            return False
        heartbeat_at = max(self.subscription.heartbeat_at or 0.0, self.listens_since)
        return time.time() - heartbeat_at >= limit_s

    async def _pass_logs_on(self, *, look_for_streams: bool) -> int:  # noqa: ARG002  # as of a job by itself
        """Do nothing, and return 0 as the number of logged lines: the feed reads the log.

        If the feed has had no heartbeat for too long, `_listen_again` reads the job's own log.
        """
        return 0

    async def _listen_again(self) -> bool:
        """Read the newest heartbeat from the job's own log; return whether the log could be read.

        The feed may be behind, or may have started after the last heartbeat. If the log cannot be read, a warning
        is logged. Until it can be read, missing heartbeats do not stop the job, but its other limits still apply.
        """
        try:
            async with shared_clients(self.followed.connection, "logs") as clients:
                heartbeat_at = await newest_heartbeat(
                    clients["logs"], group=self.tail.group, job_name=self.followed.job_name
                )
        except FAULTS as error:
            log.warning(
                "The log of job %s cannot be read, so a hang is not noticed meanwhile: %s",
                self.followed.job_name,
                error,
            )
            return False
        if heartbeat_at is not None:
            self.subscription.heartbeat_at = max(
                self.subscription.heartbeat_at or 0.0, heartbeat_at
            )
        return True

    @property
    def _heartbeat_at(self) -> float | None:
        is_known = self.is_log_read and not self.is_deaf
        return self.subscription.heartbeat_at if is_known else None

    async def _last_lines(self) -> None:
        if self.followed.wants_lines and not await self.feed.last_lines(limit_s=_LAST_LINES_S):
            log.warning(
                "Lines of job %s may be missing here; its log group %s has all",
                self.followed.job_name,
                self.tail.group,
            )
        self._pass_lines_on()

    def _pass_lines_on(self) -> None:
        """Log the feed's lines with the job's secrets masked; while the secrets are unknown, log nothing."""
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
