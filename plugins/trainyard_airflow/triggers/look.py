"""`Look`: follower of one job by polls. It logs the job's phases and log lines, and stops it at its limits."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.errors import ContractError
from trainyard.runs.live.accrual import accrued_usd
from trainyard.runs.notifier import interruption_notice
from trainyard.sagemaker_api.failures import is_unknown_job
from trainyard.sagemaker_api.job_kinds import JOB_APIS
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.specs.monitoring import Occasion
from trainyard.units import format_usd
from trainyard_airflow.hooks.notifications import notify_from_trigger
from trainyard_airflow.hooks.redaction import description_secrets, masked, masked_snapshot
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.hooks.shared_clients import shared_clients
from trainyard_airflow.triggers.answers import FAULTS, is_refusal
from trainyard_airflow.triggers.job_feed import service_time
from trainyard_airflow.triggers.kill_job import note_follower, stop_job
from trainyard_airflow.triggers.log_tail import LogTail, NewestSteps, newest_steps
from trainyard_airflow.triggers.pace import Pace
from trainyard_airflow.triggers.renewed_clients import RenewedClients
from trainyard_airflow.triggers.stop_criteria import StopReason, reason_to_stop

if TYPE_CHECKING:
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.triggers.followed import Followed

log = logging.getLogger(__name__)

_LOG_FAILURES_IN_A_ROW = 8


def _starts(snapshot: JobSnapshot) -> int:
    """Return how often the instances started to train; each start creates new log streams."""
    return sum(each.status == "Training" for each in snapshot.transitions)


@dataclass(slots=True)
class Look:
    """Follower of one job by polls: its clients, its position in the job's log, and what it has logged so far.

    The clients are renewed after rejected credentials or a connection error.
    """

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
        await self._notify_interruptions(snapshot)
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

    async def _notify_interruptions(self, snapshot: JobSnapshot) -> None:
        """Send notifications of the spot interruptions since the last poll, unless an earlier follower sent them."""
        num_known, self.num_interruptions = self.num_interruptions, snapshot.interruptions
        for number in range(num_known + 1, snapshot.interruptions + 1):
            steps = await self._newest_steps()
            notice = interruption_notice(
                job_name=snapshot.name,
                number=number,
                instances=f"{snapshot.instance_count} x {snapshot.instance_type}",
                step=steps.trained,
                checkpoint_step=steps.durable,
                cost_usd=accrued_usd(snapshot.to_dict(), now=self.now_s),
            )
            await notify_from_trigger(self.clients.aws, self.followed.notifier, notice)

    async def _newest_steps(self) -> NewestSteps:
        """Return the newest steps in the job's log for a spot notification; empty if there are none."""
        notifier = self.followed.notifier
        if notifier is None or Occasion.SPOT not in notifier.notifications.on:
            return NewestSteps()
        try:
            async with shared_clients(self.followed.connection, "logs") as clients:
                return await newest_steps(
                    clients["logs"], group=self.tail.group, job_name=self.followed.job_name
                )
        except FAULTS as error:
            log.warning(
                "The message on the interruption of job %s has no step: its log cannot be read (%s)",
                self.followed.job_name,
                error,
            )
            return NewestSteps()

    async def give_up_on(self, snapshot: JobSnapshot) -> None:
        """Stop the job if it exceeds one of its limits.

        The limit on missing heartbeats applies only if the job's log has been read to its end.
        """
        self.log_cost(snapshot.billed_seconds_at(self.now_s))
        verdict = self._verdict(snapshot)
        if verdict is not None and verdict.cause is StopCause.HUNG:
            # A newer heartbeat may be in the stream of a host that had none when streams were last listed.
            await self._pass_logs_on(look_for_streams=True)
            verdict = self._verdict(snapshot)
        if verdict is not None:
            log.warning("Requesting the stop of job %s: %s", snapshot.name, verdict.text)
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
            heartbeat_at=self._heartbeat_at,
            now=self.now_s,
        )

    @property
    def _heartbeat_at(self) -> float | None:
        is_current = self.reads_logs and not self.tail.is_behind
        return self.tail.heartbeat_at if is_current else None

    async def drain_logs(self) -> None:
        """Forward the remaining log lines."""
        while self.reads_logs and await self._pass_logs_on(look_for_streams=True):
            pass

    async def _describe(self) -> JobSnapshot:
        api = JOB_APIS[self.followed.kind]
        describe = getattr(self.sagemaker, api.describe)
        try:
            answer = await describe(**api.named(self.followed.job_name))
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                log.warning("The service has no job %s (yet)", self.followed.job_name)
            raise
        if not answer.get(api.status_key):
            raise ContractError(
                "the service described a job without a status",
                where=f"job {self.followed.job_name}",
                got=f"the fields {', '.join(answer)}",
            )
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
        """Count a failed attempt to read the log, then raise or log its error.

        The error is logged, and the job is followed without its log, if the service rejected the call permanently
        (`is_refusal`), or if this is the 8th failure in a row. Otherwise, the error is raised, so that the poll is
        retried.
        """
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
