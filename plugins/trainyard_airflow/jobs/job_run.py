"""`JobRun`: one task's work with its SageMaker jobs, from the first Describe call to the task's result.

Each method returns the task's next step (`steps.py`). No method waits for a job or depends on the scheduler, so a test
can run the whole life cycle with its own service.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
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
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.failures import failure_error, telling_lines
from trainyard.sagemaker_api.request_parts import add_environment
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.units import format_duration
from trainyard_airflow.hooks.redaction import redacted
from trainyard_airflow.jobs.attempts import NextAction, check_own_job, find_standing
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.job_code import UploadedCode
from trainyard_airflow.jobs.job_place import UNLIMITED, JobPlace
from trainyard_airflow.jobs.quota_wait import QuotaWait
from trainyard_airflow.jobs.steps import Again, AwaitQuota, AwaitStop, Done, Follow
from trainyard_airflow.triggers.pace import backoff_s, jittered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.rule_retry import RetryRemedy
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.job_spans import TaskTrace
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
    """Interface through which a `JobRun` reports to the scheduler's task."""

    def name_job(self, job_name: str) -> None:
        """Show the name of the task's job."""

    def link_job(self, job_name: str, *, output: str | None) -> None:
        """Show links to the job; `output` is the S3 prefix of its output, once it is known."""

    def note_ended(self, job: Mapping[str, Any]) -> None:
        """Report an ended job to tracing and lineage.

        `job` is the job's snapshot. Its member `earlier_attempts` has the snapshots of the task's earlier jobs.
        """

    def note_failed(self, job: Mapping[str, Any]) -> None:
        """Store the facts of a failed job for the tasks after this one."""

    def has_been_ended(self) -> bool:
        """Return whether somebody ended the task since it started; a waiting task is not notified of this."""


@dataclass(kw_only=True)
class JobRun:
    """The jobs of one start of a task.

    SageMaker has the record of the task's jobs (ADR 0004): each start first describes them. It re-attaches to a running
    job, returns the result of a completed one, and starts the next attempt after a failed or stopped one. One start
    creates at most one job; with a capacity ladder, at most one per rung.

    Attributes:
        job_type: implementation of the task's kind of job.
        policy: reaction to ends other than `Completed`.
        memory: state of the task that survives its starts.
        ledger: the task's entries on paid resources.
        host: the task in the scheduler, to which this object reports.
        poll_interval_s: shortest pause between two Create calls that the quota rejects, in seconds.
        time_limit: time limit of the task, or None.
        trace: the task's span in Airflow's trace of the run; None without a trace.
        is_killed: whether the task was killed; may be set at any time, even during a method.
        waits_for: name of the job that this start creates, has created, or waits for.
    """

    job_type: JobType
    memory: TaskMemory
    ledger: TaskLedger
    host: TaskHost
    policy: EndPolicy = field(default_factory=EndPolicy)
    poll_interval_s: float = 15.0
    time_limit: timedelta | None = None
    trace: TaskTrace | None = None
    is_killed: bool = False
    waits_for: str | None = None

    @property
    def jobs(self) -> TaskJobs:
        """The task's jobs."""
        return self.job_type.jobs

    @property
    def service(self) -> SageMakerJobs:
        """Client for the jobs of the task's kind: create, describe, stop and tag."""
        return self.jobs.service

    def next(self, quota: QuotaWait | None = None) -> Step:
        """Return the next step: attach to the task's job, return its result if it has ended, or create it.

        Args:
            quota: progress of a wait for the account's quota, or None.

        Raises:
            SpecError: the spec or the connection is wrong; nothing was started.
            RejectedRequestError: the service rejected the job, or another deployment's job has its name.
            CapacityError: the service had no instances.
            JobFailedError: the job ended with another status than `Completed`; the error's class gives the reason.
        """
        if quota is not None and quota.code is not None:
            self.job_type.code = UploadedCode(**quota.code)
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
                    log.info("Job %s is already running: waiting for it", name)
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
        self,
        snapshot: JobSnapshot,
        facts: Mapping[str, Any],
        *,
        was_attached: bool = False,
        is_announced: bool = False,
    ) -> Step:
        """Return the step after a job's end, such as the task's result or the wait for the next attempt.

        A cleared task may start before its old trigger has stopped the old job. If this start has only attached to
        that job, the stop does not end the task but leads to the next attempt.

        Args:
            snapshot: the job's end.
            facts: facts about the job, for the result.
            was_attached: whether the job existed before this start of the task.
            is_announced: whether this try of the task has already stored the job's name and these facts. A try
                stores them before it returns the step `Follow`.

        Raises:
            JobFailedError: the job ended with another status than `Completed`; the error's class gives the reason.
        """
        self.waits_for = None
        self.ledger.settle(snapshot, self.job_type.billed)
        is_stopped = snapshot.status == JobStatus.STOPPED
        if was_attached and is_stopped and self.service.was_killed(snapshot.arn):
            log.info("Job %s belonged to a killed try: next attempt", snapshot.name)
            return self.next()
        if is_announced:
            self.host.link_job(snapshot.name, output=snapshot.output_path)
        else:
            self._announce(snapshot.name, facts, output=snapshot.output_path)
        earlier = self._earlier(int(facts["attempt"]))
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": [
                {**job.to_dict(), **self.job_type.place_of(job, earlier[:index]).facts()}
                for index, job in enumerate(earlier)
            ],
        }
        self.host.note_ended(result)
        if line := spot_line(result):
            log.info("Job %s: %s", snapshot.name, line)
        if (step := self.policy.ended(snapshot, result)) is not None:
            return self._go_on(step)
        if snapshot.succeeded or (is_stopped and self.job_type.hands_on(snapshot)):
            log.info("Job %s %s", snapshot.name, snapshot.status.lower())
            return Done(result=self.job_type.completed(snapshot, result))
        return self._failed(snapshot, result, earlier)

    def answered(
        self, chosen: RetryRemedy, by: str, result: Mapping[str, Any], verdict: Mapping[str, Any]
    ) -> Step:
        """Return the step after the answer to an `AskHuman`.

        The answer is a person's choice. If nobody made a valid choice in time, it is the default remedy that
        the question names.

        Args:
            chosen: the remedy.
            by: who chose it.
            result: result of the stopped job, from the question.
            verdict: verdict on the stopped job, from the question.

        Raises:
            TrainingRunError: as for `next`; or the service rejected the tag that stores the choice, and nothing was
                started.
        """
        return self._go_on(self.policy.answered(chosen, by, result, verdict))

    def _go_on(self, step: Step | Again) -> Step:
        """Return the policy's step; for `Again`, the first step of the next attempt."""
        return self.next() if isinstance(step, Again) else step

    def resume_late(self) -> Step:
        """Return the next step of a task that resumes after its time limit.

        If the job had ended before the limit, this is the usual step. Otherwise the job is stopped.

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
        """Stop the job because the task's time limit is over.

        Raises:
            TimeLimitError: always.
        """
        was_running = self.service.stop(name)
        self.waits_for = None
        limit = self.time_limit or timedelta(0)
        raise TimeLimitError(
            f"the task exceeded its execution_timeout of {limit}; its job was "
            + ("sent a stop request" if was_running else "no longer running, or never created"),
            job_name=name,
            next_step="raise execution_timeout, or lower max_run to end the job earlier",
        )

    def kill(self) -> None:
        """Stop the job that this start waits for.

        A job that is about to be created is not created, or is stopped right after its creation.
        """
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
        place = self.job_type.place_of(job, standing.earlier) if job else UNLIMITED
        noted = self.memory.facts_of(self.jobs.name_of(standing.attempt))
        return {"attempt": standing.attempt, **place.facts(), **noted}

    def _announce(self, name: str, facts: Mapping[str, Any], *, output: str | None = None) -> None:
        # An interruption meanwhile leaves a task that names its job and knows its facts.
        self.host.name_job(name)
        self.memory.note_job(name, facts)
        self.host.link_job(name, output=output)

    def _placed(self, standing: Standing, quota: QuotaWait | None) -> JobPlace:
        full_rungs = quota.full_rungs if quota else ()
        place = self.job_type.place(standing.earlier, full_rungs=full_rungs)
        if on := place.placement:
            log.info(
                "Attempt %d on tier %d, %s: %s", standing.attempt, on.index, on.rung, on.reason
            )
        return place

    def _create(
        self, standing: Standing, name: str, quota: QuotaWait | None
    ) -> Follow | AwaitQuota | QuotaWait | None:
        """Create the job, and return the step that waits for its end.

        Otherwise, return one of these:

        - an `AwaitQuota`, if the service rejected the job for lack of quota or capacity, and the task is to wait
          before the next try
        - a `QuotaWait`, if the next rung (entry of `capacity_ladder`) is to be tried at once after such a rejection
        - None, if another process created the job meanwhile
        """
        place = self._placed(standing, quota)
        waited = {} if quota is None else {"quota_waited_s": round(time.time() - quota.began_at, 1)}
        try:
            submitted = self._submit(name, place)
        except (QuotaExceededError, CapacityError) as refusal:
            return self._await_quota(place, name, quota, refusal)
        except QuotaTooSmallError as refusal:
            return _leave_rung(place, quota, refusal)
        if submitted is None:
            return None
        facts = {"attempt": standing.attempt, **place.facts(), **waited, **submitted}
        return self._follow(name, facts)

    def _submit(self, name: str, place: JobPlace) -> dict[str, Any] | None:
        """Create the job and return its facts, or None if another process created it meanwhile.

        Raises:
            JobStoppedError: the task was killed while the request was prepared; nothing was created.
            RejectedRequestError: the service rejected the job; nothing was created. The class is QuotaExceededError
                if the account's quota is used up.
            CapacityError: the service has no capacity for the requested instances; nothing was created.
        """
        from trainyard_airflow.hooks.jobs import NameTakenError

        request, facts = self.render(name, place=place)
        log.info("Submitting job %s: %s", name, redacted(request))
        if self.is_killed:
            raise JobStoppedError(
                "the task was killed before its job was created",
                job_name=name,
                next_step="if this was not intended, clear the task",
            )
        self.ledger.intend(name)
        self.waits_for = name
        try:
            return {**facts, **self.job_type.create(request, facts)}
        except NameTakenError:
            log.info("Job %s was created by another process meanwhile", name)
            return None
        except (RejectedRequestError, CapacityError):
            self.waits_for = None
            self.ledger.withdraw(name)
            raise

    def render(
        self, name: str, *, place: JobPlace = UNLIMITED
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result.

        Args:
            name: the job's name.
            place: its capacity and limits, from `JobType.place`.
        """
        request, facts = self.job_type.render(name, place=place)
        if self.trace is not None:
            add_environment(request, self.trace.environment(name))
        return request, {**facts, **self.policy.change(request, name=name)}

    def _pause_before_submit(self, name: str, submits: int) -> None:
        """Pause before the task looks again for a job whose name is taken.

        The service rejected the job's name as taken, but Describe has not found a job of that name yet.

        Raises:
            RejectedRequestError: the service did not describe the job after several tries.
        """
        if submits >= _MOST_SUBMITS:
            noun = self.jobs.api.noun
            raise RejectedRequestError(
                "SageMaker rejects the job's name as taken, but describes no job of that name",
                operation=f"Create{noun}",
                code="ResourceInUse",
                where=f"job {name}",
                got=f"{submits} rejections",
                next_step="look for the job in the console; check the connection's region and its "
                f"permission for Describe{noun}",
            )
        time.sleep(backoff_s(submits))

    def _follow(self, name: str, facts: dict[str, Any], *, was_attached: bool = False) -> Follow:
        """Return the step in which the task waits for the end of a running job.

        Raises:
            JobStoppedError: the task was ended before this step was returned, so the job was stopped.
        """
        self.waits_for = name
        if self.is_killed:
            self.service.stop(name, is_kill=True)
            raise JobStoppedError(
                "the task was killed while its job started, so the job was stopped",
                job_name=name,
                next_step="if this was not intended, clear the task",
            )
        try:
            self._announce(name, facts)
        finally:  # Airflow accepts no XCom of a deleted run
            if self.host.has_been_ended():
                self.service.stop(name, is_kill=True)
                raise JobStoppedError(
                    "the task was cleared, deleted or marked as ended while its job started, so the job was stopped",
                    job_name=name,
                    next_step="if this was not intended, clear the task",
                )
        return Follow(
            job_name=name,
            facts=facts,
            patience=self.job_type.patience(facts),
            was_attached=was_attached,
        )

    def _await_quota(
        self,
        place: JobPlace,
        name: str,
        quota: QuotaWait | None,
        refusal: QuotaExceededError | CapacityError,
    ) -> AwaitQuota | QuotaWait:
        """Return the wait before the next Create call, after a rejection for lack of quota or capacity.

        The result is an `AwaitQuota` until the time of the rung (entry of `capacity_ladder`) is over. Then the next
        rung is tried at once. In this case, the result is only the state of the wait (`QuotaWait`), and the caller
        does not wait.

        Such waits do not use the task's retries, which are for paid attempts. They also end with the task's time
        limit.

        Args:
            place: capacity of the rejected job.
            name: name of the job.
            quota: progress of the wait; None before the first rejection.
            refusal: error of the Create call.

        Raises:
            QuotaExceededError: the time of the last or only rung is over, and the quota is full.
            CapacityError: the time of the last or only rung is over, and there is no capacity.
        """
        now = time.time()
        quota = quota or QuotaWait.begin(now)
        on = place.placement
        limit_s = (on.rung.max_wait_s if on else None) or self.job_type.max_quota_wait_s
        if quota.is_over(limit_s, now=now):
            if on is None or on.is_last:
                raise refusal
            log.warning("Quota for %s stayed full: the next tier is tried", on.rung)
            return quota.given_up(on.index, now=now)
        code = self.job_type.code
        quota = replace(quota.refused(), code=code.to_dict() if code else None)
        # The jitter spreads the next calls of tasks that were rejected together.
        delay_s = jittered(quota.pause_s(self.poll_interval_s))
        log.info(
            "Job %s has waited for quota since %s: %s; retry in %s",
            name,
            format_duration(now - quota.began_at),
            refusal.got or refusal.what,
            format_duration(delay_s),
        )
        return AwaitQuota(job_name=name, seconds=delay_s, quota=quota)

    def _failed(
        self, snapshot: JobSnapshot, result: dict[str, Any], earlier: Sequence[JobSnapshot]
    ) -> Step:
        """Return the step after a failed job: the policy's step, or the first step of the next attempt.

        The next attempt starts at once in two cases:

        - the job got no capacity, and a later rung (entry of `capacity_ladder`) can be tried
        - the job was stopped because a window of its training plan ends
        """
        if known := self.job_type.known_error(snapshot, earlier):
            self.host.note_failed({**result, "log_tail": []})
            raise known
        attempt = int(result["attempt"])
        lines = self.job_type.telling_log(snapshot.name)
        self.host.note_failed({**result, "log_tail": telling_lines(lines)})
        where = f"above in this task's log and in log group {self.jobs.api.log_group}"
        cause = (
            self.service.stop_cause(snapshot.arn) if snapshot.status == JobStatus.STOPPED else None
        )
        error = failure_error(snapshot, log_lines=lines, log_hint=where, stopped_for=cause)
        if cause is StopCause.WINDOW:
            log.warning("%s", error.what)
            self.memory.note_reported(attempt)
            return self.next()
        if isinstance(error, _LACKS_CAPACITY) and result.get("is_last_rung") is False:
            on = self.job_type.place([*earlier, snapshot]).placement
            if on and on.index > result["rung"]:
                log.warning("%s", error.what)
                self.memory.note_reported(attempt)
                return self.next()
        judged = self.job_type.judged(snapshot, error)
        # Last: what raises before it must not pass for a reported failure.
        self.memory.note_reported(attempt)
        return self.policy.failed(snapshot, result, judged)


def _leave_rung(place: JobPlace, quota: QuotaWait | None, refusal: QuotaTooSmallError) -> QuotaWait:
    """Return the task's wait for quota, moved to the next rung (entry of `capacity_ladder`).

    The current rung is given up because its quota is too small for the job.

    Raises:
        QuotaTooSmallError: there is no further rung.
    """
    on = place.placement
    if on is None or on.is_last:
        raise refusal
    log.warning("%s: the next tier is tried", refusal.got or refusal.what)
    now = time.time()
    return (quota or QuotaWait.begin(now)).refused().given_up(on.index, now=now)
