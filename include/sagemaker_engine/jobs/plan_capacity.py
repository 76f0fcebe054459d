"""One job's wait for the instances of its training plan, and the loss of the instances when a window ends.

The service documents these rules:

- A job is Pending until a window of the plan begins, and between two windows.
- The termination of the instances begins 30 minutes before the end of a window.
- MaxPendingTimeInSeconds counts only while the plan is Active.
- A job that was Pending for two days fails.

ADR 0084 describes the undocumented behavior.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagemaker_engine.jobs.job import JobError, plan_hosts
from sagemaker_engine.jobs.supervision import Ending
from sagemaker_engine.plans.clock import FILE, PlanClock
from sagemaker_engine.plans.tables import MissingPlanError, PlanTables
from sagemaker_engine.plans.use import plan_arn_of

if TYPE_CHECKING:
    from sagemaker_engine.jobs.job import Job
    from sagemaker_engine.plans.plan import ReservedWindow
    from sagemaker_engine.plans.tables import StoredPlan

LONGEST_PENDING_S = 2 * 24 * 3600.0
WINDOW_ENDED = "CapacityError: The reserved capacity of training plan {arn} has ended, and the plan has no later one."
PENDING_TOO_LONG = "InsufficientCapacityError: The job was pending for 2 days for instances of training plan {arn}."
PENDING_SINCE = "PlanPendingSince"
"""Member of the stored state: the time on the plans' clock at which the job was created."""
EXPIRATION_VARIABLE = "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
"""Variable of a container in a plan: end of the window in epoch milliseconds."""


@dataclass(slots=True, kw_only=True)
class PlanCapacity:
    """The training plan of a job, and the plan's window in which the job has instances.

    - `pending_since`: time at which the job began to wait, on the clock of the engine's plans (`PlanClock`).
    - `max_pending_s`: limit of the total wait for instances while windows are open; None for no limit.
    """

    arn: str
    job_arn: str
    instances: int
    pending_since: float
    max_pending_s: float | None
    tables: PlanTables
    clock: PlanClock
    _window: ReservedWindow | None = field(default=None, init=False)
    _pending_s: float = field(default=0.0, init=False)
    """Seconds of the current wait in the open window, plus those of the earlier waits."""
    _earlier_pending_s: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, job: Job) -> PlanCapacity | None:
        """Return the plan capacity of a job; None for a job without a plan."""
        arn = plan_arn_of(job.request)
        if arn is None:
            return None
        limit = job.request.get("StoppingCondition", {}).get("MaxPendingTimeInSeconds")
        clock = PlanClock(path=job.settings.root / FILE)
        state = job.store.get(job.kind, job.name).state
        has_run = len(state["SecondaryStatusTransitions"]) > 1
        return cls(
            arn=arn,
            job_arn=job.arn,
            instances=len(plan_hosts(job.request["ResourceConfig"])),
            pending_since=clock.now() if has_run else state.get(PENDING_SINCE, clock.now()),
            max_pending_s=limit,
            tables=PlanTables(job.store.database),
            clock=clock,
        )

    def is_granted(self) -> bool:
        """Request the instances; return whether the job has them.

        Raises:
            JobError: The plan has ended, or the job was pending for too long.
        """
        plan, now = self._plan(), self.clock.now()
        window = plan.reservation.window_for_jobs(now)
        if window is None:
            if not plan.reservation.has_window_after(now):
                raise JobError(WINDOW_ENDED.format(arn=self.arn))
            return False
        waited_s = now - max(self.pending_since, window.starts_at)
        self._pending_s = self._earlier_pending_s + waited_s
        if self.tables.use(self.job_arn, plan, self.instances):
            self._window = window
            return True
        if self._pending_s >= LONGEST_PENDING_S:
            raise JobError(PENDING_TOO_LONG.format(arn=self.arn))
        return False

    def has_waited_too_long(self) -> Ending | None:
        """Return STOPPED if MaxPendingTimeInSeconds is over, otherwise None."""
        limit = self.max_pending_s
        return Ending.STOPPED if limit is not None and self._pending_s >= limit else None

    def loss(self) -> Ending | None:
        """Return the reason why the job's instances are terminated now, or None.

        If the plan's window was extended meanwhile, the job keeps its instances.
        """
        if self._window is None or self._current().takes_jobs(self.clock.now()):
            return None
        return Ending.WINDOW_ENDED

    def leave(self) -> None:
        """Release the instances of a window that has ended.

        Raises:
            JobError: The plan has no further window.
        """
        self.tables.release(self.job_arn)
        self._window = None
        self.pending_since, self._earlier_pending_s = self.clock.now(), self._pending_s
        if not self._plan().reservation.has_window_after(self.clock.now()):
            raise JobError(WINDOW_ENDED.format(arn=self.arn))

    def environment(self) -> dict[str, str]:
        """Return the environment variable with the window's end; empty if the job has no instances.

        The end is in epoch milliseconds of real time, even if the plans' clock is ahead of real time.
        """
        if self._window is None:
            return {}
        ends_at = self._current().ends_at - self.clock.ahead_s()
        return {EXPIRATION_VARIABLE: str(round(ends_at * 1000))}

    def _current(self) -> ReservedWindow:
        """Return the current version of the job's window, which may have been extended."""
        assert self._window is not None  # noqa: S101  # called while the job has instances
        windows = self._plan().reservation.windows
        return next(each for each in windows if each.id == self._window.id)

    def _plan(self) -> StoredPlan:
        try:
            return self.tables.get(self.arn)
        except MissingPlanError as error:
            raise JobError(
                f"InternalServerError: training plan {self.arn} no longer exists"
            ) from error
