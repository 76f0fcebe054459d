"""`JobRun`: one task's work with its SageMaker jobs, from the first look at the service to the task's result.

Each method returns a step (`steps.py`): what the task does next. None waits for a job, and none knows who schedules
the task, so that a test walks through a whole life with a service of its own.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from trainyard.cost.job_cost import spot_line
from trainyard.errors import (
    CapacityError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    SpotInterruptionError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.sagemaker_api.failures import failure_error, telling_lines
from trainyard.units import format_duration
from trainyard_airflow.hooks.redaction import redacted
from trainyard_airflow.jobs.attempts import NextAction, find_standing
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.ownership import check_own_job
from trainyard_airflow.jobs.quota_wait import QuotaWait
from trainyard_airflow.jobs.steps import Again, AwaitQuota, AwaitStop, Done, Follow
from trainyard_airflow.triggers.pace import backoff_s, jittered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.rule_retry import RetryRemedy
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.jobs import SageMakerJobs
    from trainyard_airflow.jobs.attempts import Standing
    from trainyard_airflow.jobs.job_type import JobType
    from trainyard_airflow.jobs.steps import Step
    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.task_ledger import TaskLedger
    from trainyard_airflow.jobs.task_memory import TaskMemory

log = logging.getLogger(__name__)

_LACKS_CAPACITY = (CapacityError, QuotaExceededError, SpotInterruptionError)
_MOST_SUBMITS = 5


class TaskHost(Protocol):
    """The scheduler's side of the task, as far as a run needs it."""

    def name_job(self, job_name: str) -> None:
        """Show the task's job."""

    def link_job(self, job_name: str, *, output: str | None) -> None:
        """Show where the job can be seen; `output` is the S3 prefix it writes to, once it is known."""

    def note_failed(self, job: Mapping[str, Any]) -> None:
        """Keep what is known of a failed job for the tasks after this one."""

    def has_been_ended(self) -> bool:
        """Return whether somebody ended the task since it started, which it would not hear of while it waits."""


@dataclass(kw_only=True)
class JobRun:
    """The jobs of one start of a task.

    The service is the ledger (ADR 0004): a start looks there first. A running job is re-attached, a completed one is
    the result, a failed or stopped one is followed by the next attempt. One start creates at most one job, and with a
    capacity ladder at most one for each rung.

    Attributes:
        job_type: what is different about the task's kind of job.
        policy: what the task makes of ends but `Completed`.
        memory: of the task, across its starts.
        ledger: its notes of what is paid.
        host: the scheduler's side of the task.
        poll_interval_s: shortest pause between two Create calls that a full quota refuses.
        time_limit: of the task; None for none.
        is_killed: whether the task was killed. Set at any time, in the middle of a method, too.
        waits_for: name of the job that this start has created, or is about to create, or waits for.
    """

    job_type: JobType
    memory: TaskMemory
    ledger: TaskLedger
    host: TaskHost
    policy: EndPolicy = field(default_factory=EndPolicy)
    poll_interval_s: float = 15.0
    time_limit: timedelta | None = None
    is_killed: bool = False
    waits_for: str | None = None

    @property
    def jobs(self) -> TaskJobs:
        """The task's jobs."""
        return self.job_type.jobs

    @property
    def service(self) -> SageMakerJobs:
        """The service's jobs of this kind."""
        return self.jobs.service

    def next(self, quota: QuotaWait | None = None) -> Step:
        """Take the task's job on: attach to it, return it if it has ended, or create it.

        Args:
            quota: how far a wait for the account's quota has come.

        Raises:
            SpecError: the spec or the connection is wrong; nothing was started.
            RejectedRequestError: the service refused the job, or its name is another deployment's.
            CapacityError: the service had no instances.
            JobFailedError: the job ended otherwise than `Completed`; its class says why.
        """
        submits = 0
        while True:
            standing = self._standing()
            name = self.jobs.name_of(standing.attempt)
            if standing.snapshot is not None:
                self._check_own(standing.snapshot)
            match standing.step:
                case NextAction.ADOPT | NextAction.REPORT:
                    assert standing.snapshot is not None  # noqa: S101  # both steps carry one
                    log.info("Job %s has ended already: %s", name, standing.snapshot.status)
                    return self.ended(standing.snapshot, self._facts(standing))
                case NextAction.AWAIT_END:
                    log.info("Job %s is stopping: the next attempt starts after it", name)
                    self.waits_for = name
                    return AwaitStop(job_name=name, quota=quota)
                case NextAction.ATTACH:
                    log.info("Job %s runs already: waiting for it", name)
                    return self._follow(name, self._facts(standing), was_attached=True)
                case NextAction.SUBMIT:
                    outcome = self._create(standing, name, quota)
                    if isinstance(outcome, Follow | AwaitQuota):
                        return outcome
                    if isinstance(outcome, QuotaWait):
                        quota = outcome
                        continue
                    submits += 1
                    self._pause_before_submit(name, submits)

    def ended(
        self, snapshot: JobSnapshot, facts: Mapping[str, Any], *, was_attached: bool = False
    ) -> Step:
        """Go on from a job's end: to the task's result, the next rung of its ladder, or its error.

        A job that this start only attached to, and that a kill of the task's earlier try stopped, is no end: a cleared
        task starts again before its old trigger has stopped the old job.

        Raises:
            JobFailedError: the job ended otherwise than `Completed`; its class says why.
        """
        self.waits_for = None
        self.ledger.settle(snapshot, self.job_type.billed)
        is_stopped = snapshot.status == "Stopped"
        if was_attached and is_stopped and self.service.was_killed(snapshot.arn):
            log.info("Job %s belonged to a killed try: next attempt", snapshot.name)
            return self.next()
        self._announce(snapshot.name, facts, output=snapshot.output_path)
        earlier = self._earlier(int(facts["attempt"]))
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": [
                {**job.to_dict(), **self.job_type.place_of(job, earlier[:index])}
                for index, job in enumerate(earlier)
            ],
        }
        if line := spot_line(result):
            log.info("Job %s: %s", snapshot.name, line)
        if (step := self.policy.ended(snapshot, result)) is not None:
            return self._go_on(step)
        if snapshot.succeeded or (is_stopped and self.job_type.hands_on(snapshot)):
            log.info("Job %s %s", snapshot.name, snapshot.status.lower())
            return Done(result=self.job_type.completed(result))
        return self._failed(snapshot, result, earlier)

    def answered(
        self, chosen: RetryRemedy, by: str, result: Mapping[str, Any], verdict: Mapping[str, Any]
    ) -> Step:
        """Go on after a person, or the policy in its place, has answered an `AskHuman`.

        Args:
            chosen: how the training goes on.
            by: who chose it.
            result: of the stopped job, as the question had it.
            verdict: likewise.

        Raises:
            TrainingRunError: as `next`; or the service refused to note the choice: then nothing has gone on.
        """
        return self._go_on(self.policy.answered(chosen, by, result, verdict))

    def _go_on(self, step: Step | Again) -> Step:
        """Return a policy's step, the next attempt's first one if the training goes on."""
        return self.next() if isinstance(step, Again) else step

    def resume_late(self) -> Step:
        """Go on although the task's time is over: from a job that ended just before that; stop one that did not.

        Raises:
            TimeLimitError: the job had not ended.
        """
        standing = self._standing()
        snapshot = standing.last
        if snapshot is None:
            self.time_out(self.jobs.name_of(standing.attempt))
        if standing.step not in {NextAction.ADOPT, NextAction.REPORT}:
            self._announce(snapshot.name, self.memory.facts_of(snapshot.name))
            self.time_out(snapshot.name)
        return self.ended(snapshot, self._facts(standing))

    def time_out(self, name: str) -> NoReturn:
        """Stop the job, for the task's time is over.

        Raises:
            TimeLimitError: always.
        """
        was_running = self.service.stop(name)
        self.waits_for = None
        limit = self.time_limit or timedelta(0)
        raise TimeLimitError(
            f"the task's execution_timeout of {limit} passed; its job was "
            + ("told to stop" if was_running else "no longer running, or never created"),
            job_name=name,
            next_step="raise execution_timeout, or max_run where the job itself shall end earlier",
        )

    def kill(self) -> None:
        """Stop the job that this start waits for; one that is about to be created is not, or is stopped at once."""
        from botocore.exceptions import BotoCoreError

        self.is_killed = True
        if self.waits_for is None:
            log.warning("Task was killed: it has no job to stop")
            return
        log.warning("Task was killed: stopping job %s", self.waits_for)
        try:
            self.service.stop(self.waits_for, is_kill=True)
        except (TrainingRunError, BotoCoreError) as error:
            log.error("Job %s could not be stopped: %s", self.waits_for, error)  # noqa: TRY400

    def _standing(self) -> Standing:
        standing = find_standing(
            self.jobs.of_attempt,
            reported=self.memory.reported_attempt,
            hands_on=lambda job: self.job_type.hands_on(job) or self.policy.hands_on(job),
        )
        return self.policy.standing(standing)

    def _check_own(self, snapshot: JobSnapshot) -> None:
        check_own_job(
            snapshot,
            destinations=self.job_type.destinations(),
            tags=self.service.tags_known(snapshot.arn),
            deployment=self.jobs.clients.deployment,
        )

    def _earlier(self, attempt: int) -> list[JobSnapshot]:
        described = (self.jobs.of_attempt(each) for each in range(1, attempt))
        return [each for each in described if each is not None]

    def _facts(self, standing: Standing) -> dict[str, Any]:
        job = standing.snapshot
        place = self.job_type.place_of(job, standing.earlier) if job else {}
        noted = self.memory.facts_of(self.jobs.name_of(standing.attempt))
        return {"attempt": standing.attempt, **place, **noted}

    def _announce(self, name: str, facts: Mapping[str, Any], *, output: str | None = None) -> None:
        # An interruption meanwhile leaves a task that names its job and knows its facts.
        self.host.name_job(name)
        self.memory.note_job(name, facts)
        self.host.link_job(name, output=output)

    def _placed(self, standing: Standing, quota: QuotaWait | None) -> dict[str, Any]:
        full_rungs = quota.full_rungs if quota else ()
        place = self.job_type.place(standing.earlier, full_rungs=full_rungs)
        if "rung" in place:
            log.info(
                "Attempt %d on rung %d, %s: %s",
                standing.attempt,
                place["rung"],
                place["rung_name"],
                place["rung_reason"],
            )
        if quota is None:
            return place
        return {**place, "quota_waited_s": round(time.time() - quota.began_at, 1)}

    def _create(
        self, standing: Standing, name: str, quota: QuotaWait | None
    ) -> Follow | AwaitQuota | QuotaWait | None:
        """Create the job and return the wait for it, or for the account's quota.

        Returns a `QuotaWait` if the next rung is to be tried, and None if a job of this name appeared meanwhile.
        """
        place = self._placed(standing, quota)
        try:
            submitted = self._submit(name, place)
        except (QuotaExceededError, CapacityError) as refusal:
            return self._await_quota(place, name, quota, refusal)
        except QuotaTooSmallError as refusal:
            return _leave_rung(place, quota, refusal)
        if submitted is None:
            return None
        return self._follow(name, {"attempt": standing.attempt, **place, **submitted})

    def _submit(self, name: str, place: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create the job and return its facts; None when a job of this name appeared meanwhile.

        Raises:
            JobStoppedError: the task was killed while the request was made ready; nothing was created.
            RejectedRequestError: the service refused, for its quota (QuotaExceededError) or for good: nothing there.
            CapacityError: it has no such instances; nothing was created.
        """
        from trainyard_airflow.hooks.jobs import NameTakenError

        request, facts = self.render(name, place=place)
        log.info("Submitting job %s: %s", name, redacted(request))
        if self.is_killed:
            raise JobStoppedError("the task was killed before its job was created", job_name=name)
        self.ledger.intend(name)
        self.waits_for = name
        try:
            return {**facts, **self.job_type.create(request, facts)}
        except NameTakenError:
            log.info("Job %s appeared meanwhile", name)
            return None
        except (RejectedRequestError, CapacityError):
            self.waits_for = None
            self.ledger.withdraw(name)
            raise

    def render(
        self, name: str, *, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result.

        Args:
            name: the job's.
            place: its capacity, as `JobType.place` returned it.
        """
        request, facts = self.job_type.render(name, place=place)
        return request, {**facts, **self.policy.change(request, name=name)}

    def _pause_before_submit(self, name: str, submits: int) -> None:
        """Wait a moment, so that a job whose name is taken can be described.

        Raises:
            RejectedRequestError: it could not, several times.
        """
        if submits >= _MOST_SUBMITS:
            noun = self.jobs.api.noun
            raise RejectedRequestError(
                "the service refuses the job's name as taken, and describes no job of that name",
                operation=f"Create{noun}",
                code="ResourceInUse",
                where=f"job {name}",
                got=f"{submits} refusals",
                next_step="look for the job in the console; check the connection's region and its "
                f"permission for Describe{noun}",
            )
        time.sleep(backoff_s(submits))

    def _follow(self, name: str, facts: dict[str, Any], *, was_attached: bool = False) -> Follow:
        """Return the wait for a job that runs.

        Raises:
            JobStoppedError: the task was ended meanwhile; the job was stopped.
        """
        self.waits_for = name
        if self.is_killed:
            self.service.stop(name, is_kill=True)
            raise JobStoppedError("the task was killed while its job started", job_name=name)
        self._announce(name, facts)
        if self.host.has_been_ended():
            self.service.stop(name, is_kill=True)
            raise JobStoppedError("the task was ended while its job started", job_name=name)
        return Follow(
            job_name=name,
            facts=facts,
            patience=self.job_type.patience(facts),
            was_attached=was_attached,
        )

    def _await_quota(
        self,
        place: Mapping[str, Any],
        name: str,
        quota: QuotaWait | None,
        refusal: QuotaExceededError | CapacityError,
    ) -> AwaitQuota | QuotaWait:
        """Return the wait until the Create call is worth another try; how far it has come if that is now.

        The task's retries are for attempts that were paid: a full quota is waited for without them, until the task's
        time limit or until the rung's time is over and it is the next rung's turn.

        Args:
            place: the rung.
            name: the job's name.
            quota: how far the waiting has come; None before the first refusal.
            refusal: of the Create call.

        Raises:
            QuotaExceededError: the last rung's time is over.
            CapacityError: likewise.
        """
        now = time.time()
        quota = quota or QuotaWait.begin(now)
        if quota.is_over(place.get("rung_max_wait_s") or self.job_type.max_quota_wait_s, now=now):
            if place.get("is_last_rung", True):
                raise refusal
            log.warning("Quota for %s stayed full: the next rung is tried", place["rung_name"])
            return quota.given_up(place["rung"], now=now)
        quota = quota.refused()
        # Tasks that were refused together do not ask together again.
        delay_s = jittered(quota.pause_s(self.poll_interval_s))
        log.info(
            "Job %s waits for quota since %s: %s; asking again in %s",
            name,
            format_duration(now - quota.began_at),
            refusal.got or refusal.what,
            format_duration(delay_s),
        )
        return AwaitQuota(job_name=name, seconds=delay_s, quota=quota)

    def _failed(
        self, snapshot: JobSnapshot, result: dict[str, Any], earlier: Sequence[JobSnapshot]
    ) -> Step:
        """Go on to the next rung if the job got no capacity and there is one; else by its error."""
        if known := self.job_type.known_error(snapshot, earlier):
            self.host.note_failed({**result, "log_tail": []})
            raise known
        attempt = int(result["attempt"])
        lines = self.job_type.telling_log(snapshot.name)
        self.host.note_failed({**result, "log_tail": telling_lines(lines)})
        where = f"log group {self.jobs.api.log_group}, above in this log"
        cause = self.service.stop_cause(snapshot.arn) if snapshot.status == "Stopped" else None
        error = failure_error(snapshot, log_lines=lines, log_hint=where, stopped_for=cause)
        if isinstance(error, _LACKS_CAPACITY) and result.get("is_last_rung") is False:
            place = self.job_type.place([*earlier, snapshot])
            if place["rung"] > result["rung"]:
                log.warning("%s", error.what)
                self.memory.note_reported(attempt)
                return self.next()
        judged = self.job_type.judged(snapshot, error)
        # Last: what raises before it must not pass for a reported failure.
        self.memory.note_reported(attempt)
        return self.policy.failed(snapshot, result, judged)


def _leave_rung(
    place: Mapping[str, Any], quota: QuotaWait | None, refusal: QuotaTooSmallError
) -> QuotaWait:
    """Return the waiting as it stands on the next rung: this one's quota could never hold the job.

    Raises:
        QuotaTooSmallError: there is no rung after it.
    """
    if place.get("is_last_rung", True):
        raise refusal
    log.warning("%s: the next rung is tried", refusal.got or refusal.what)
    now = time.time()
    return (quota or QuotaWait.begin(now)).refused().given_up(place["rung"], now=now)
