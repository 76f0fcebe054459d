"""Choice of a rung (an entry of `capacity_ladder`) for a task's next job.

The rung is derived from the snapshots of the earlier jobs. They contain the jobs' instances and how the
jobs ended. The choice therefore needs no stored state, and does not change if a worker, triggerer or
scheduler is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.cost.attempt_budget import attempt_ceiling, left_over, paid_usd
from trainyard.errors import BudgetExceededError, CapacityError, QuotaExceededError
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.failures import failure_error
from trainyard.specs.capacity_rung import CapacityRung, plan_name
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.specs.training_job import TrainingJobSpec

# What StoppingCondition.MaxPendingTimeInSeconds takes (botocore 1.44); it holds for accelerated types only.
_LEAST_PENDING_S = 1800
_MOST_PENDING_S = 28 * 24 * 3600
_PENDING_MARGIN_S = 300
"""Seconds by which the service's limit is longer than the tier's, so that the trigger acts first and tags the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Rung of an attempt, with the reason for it.

    Attributes:
        index: index of the rung, from 0.
        num_rungs: number of rungs in the ladder.
        reason: reason for this rung, as text.
        waited_s: seconds that the previous attempt waited for instances without getting any, if that is the reason.
    """

    rung: CapacityRung
    index: int
    num_rungs: int
    reason: str
    waited_s: float | None = None

    @property
    def is_last(self) -> bool:
        """True if no rung comes after it."""
        return self.index + 1 == self.num_rungs

    def facts(self) -> dict[str, Any]:
        """Return the placement's facts for the job's result, JSON-safe."""
        return {
            "rung": self.index,
            "rung_name": str(self.rung),
            "rung_reason": self.reason,
            "rung_waited_s": self.waited_s,
            "rung_max_wait_s": self.rung.max_wait_s,
            "is_last_rung": self.is_last,
        }


def rungs_of(spec: TrainingJobSpec) -> tuple[CapacityRung, ...]:
    """Return the rungs of the spec's ladder; without a ladder, one rung with the spec's instances.

    Each rung has an instance count: its own, or by default the spec's. The result is empty if the spec has
    neither a ladder nor an `instance_type`. Such a spec uses instance groups, instance preferences or a
    serverless job.
    """
    count = spec.instance_count or 1
    if spec.capacity_ladder:
        return tuple(
            replace(each, instance_count=each.instance_count or count)
            for each in spec.capacity_ladder
        )
    if spec.instance_type is None:
        return ()
    return (
        CapacityRung(
            instance_type=spec.instance_type,
            instance_count=count,
            use_spot_instances=spec.use_spot_instances,
            training_plan=spec.training_plan,
        ),
    )


def rung_index(rungs: Sequence[CapacityRung], job: JobSnapshot) -> int | None:
    """Return the index of a job's rung, by its instances; None if they match no rung."""
    on = (job.instance_type, job.instance_count, job.is_spot, _name(job.training_plan))
    kinds = [
        (
            each.instance_type,
            each.instance_count,
            each.use_spot_instances,
            _name(each.training_plan),
        )
        for each in rungs
    ]
    return kinds.index(on) if on in kinds else None


def place_next(
    rungs: Sequence[CapacityRung],
    earlier: Sequence[JobSnapshot],
    *,
    max_run_s: int,
    full_rungs: Sequence[int] = (),
    closed_rungs: Mapping[int, str] | None = None,
) -> Placement:
    """Return the placement of the attempt after the `earlier` jobs.

    The first attempt uses the first rung. Each later attempt uses the rung of the last job. If that job got no
    capacity, the attempt uses the next rung instead; after the last rung, the first one is next. Rungs whose
    cost limit is too small for another attempt are skipped.

    Args:
        rungs: the rungs with their instance counts; at least one.
        earlier: the task's earlier jobs, oldest first, all ended.
        max_run_s: time limit of the attempt in seconds.
        full_rungs: indexes of rungs to skip because the account's quota for them is used up.
        closed_rungs: rungs to skip because their training plan cannot be used. The keys are the rungs' indexes,
            and the values are the reasons.

    Raises:
        BudgetExceededError: for each rung, the cost limit is too small or the quota is used up.
        CapacityError: no rung can be used, at least one of them because of its training plan.
    """
    closed = closed_rungs or {}
    start, reason, waited_s = _start(rungs, earlier)
    if full_rungs:
        reason = f"the account's quota for tier {full_rungs[-1]} was used up"
    passed: list[str] = []
    for offset in range(len(rungs)):
        index = (start + offset) % len(rungs)
        if index in full_rungs:
            continue
        if index in closed:
            passed.append(f"tier {index} ({rungs[index]}) cannot be used, because {closed[index]}")
            continue
        too_dear = _too_dear(rungs[index], index, earlier, rungs, max_run_s)
        if too_dear is None:
            return Placement(
                rung=rungs[index],
                index=index,
                num_rungs=len(rungs),
                reason="; ".join([reason, *passed]),
                waited_s=waited_s,
            )
        passed.append(too_dear)
    passed += [
        f"the account's quota for tier {index} ({rungs[index]}) is used up" for index in full_rungs
    ]
    if closed:
        raise CapacityError(
            "no tier of the capacity ladder can be used",
            where="capacity_ladder",
            got="; ".join(passed),
            next_step="add a tier on spot or on demand, extend the training plan, or clear the task in the plan's next "
            "window: it resumes from the last checkpoint",
        )
    error = _ladder_used_up(rungs, earlier, passed, max_run_s)
    raise error


def place_of(
    rungs: Sequence[CapacityRung],
    job: JobSnapshot,
    earlier: Sequence[JobSnapshot],
) -> Placement | None:
    """Return the placement of a submitted job, or None if its instances match no rung."""
    index = rung_index(rungs, job)
    if index is None:
        return None
    start, reason, waited_s = _start(rungs, earlier)
    if start != index:
        reason = f"tier {start} had no quota, no budget or no open window left"
        waited_s = None
    return Placement(
        rung=rungs[index], index=index, num_rungs=len(rungs), reason=reason, waited_s=waited_s
    )


def lacked_capacity(job: JobSnapshot, rung: CapacityRung | None) -> str | None:
    """Return an explanation if the job ended for lack of capacity, or None if it ended for another reason."""
    if job.status in {JobStatus.FAILED, JobStatus.STOPPED} and isinstance(
        failure_error(job), (CapacityError, QuotaExceededError)
    ):
        return "the service had no instances" + _after(job)
    if job.secondary_status == "MaxWaitTimeExceeded":
        return "max_wait passed" + _after(job)
    waited_s = _waited_s(job)
    limit_s = rung.max_wait_s if rung else None
    if job.status == JobStatus.STOPPED and limit_s is not None and (waited_s or 0.0) >= limit_s:
        return f"it waited {format_duration(waited_s or 0.0)}, and its max_wait_s is {format_duration(limit_s)}"
    return None


def spec_on_rung(spec: TrainingJobSpec, rung: CapacityRung) -> TrainingJobSpec:
    """Return the spec of one job on this rung.

    The spec also sets the service's own limit on the wait for capacity:

    - on spot: `max_wait`, which limits waiting and running together
    - on demand or in a training plan: `max_pending_time_in_seconds`

    If `spec` has a `max_pending_time_in_seconds`, this value is kept. Otherwise, a value is set if three
    conditions are met: the rung is on demand or in a training plan, its instance type is accelerated, and its
    `max_wait_s` is at least 30 minutes. The value is then `max_wait_s` plus 5 minutes, at most 28 days.

    The job's trigger stops the job after a wait of `max_wait_s`. A longer limit of the service therefore takes
    effect only if no trigger follows the job.
    """
    return replace(
        spec,
        capacity_ladder=(),
        instance_type=rung.instance_type,
        instance_count=rung.instance_count,
        use_spot_instances=rung.use_spot_instances,
        training_plan=rung.training_plan,
        max_wait=_max_wait_s(spec, rung),
        max_pending_time_in_seconds=_max_pending_s(spec, rung),
    )


def _start(
    rungs: Sequence[CapacityRung], earlier: Sequence[JobSnapshot]
) -> tuple[int, str, float | None]:
    if not earlier:
        return 0, "the first attempt takes the first tier", None
    last = earlier[-1]
    on = rung_index(rungs, last)
    if on is None:
        return 0, f"{last.name} was on no tier of this ladder", None
    why = lacked_capacity(last, rungs[on])
    if why is None:
        return on, f"the previous attempt ended as {last.secondary_status or last.status}", None
    return (on + 1) % len(rungs), f"no capacity on tier {on} ({rungs[on]}): {why}", _waited_s(last)


def _too_dear(
    rung: CapacityRung,
    index: int,
    earlier: Sequence[JobSnapshot],
    rungs: Sequence[CapacityRung],
    max_run_s: int,
) -> str | None:
    """Return an explanation if the rung's cost limit is too small for another attempt, otherwise None."""
    if rung.max_cost_usd is None:
        return None
    paid = paid_usd([job.to_dict() for job in earlier if rung_index(rungs, job) == index])
    ceiling = attempt_ceiling(rung, max_run_s=max_run_s)
    if left_over(rung.max_cost_usd, paid=paid, ceiling=ceiling) is not False:
        return None
    return (
        f"tier {index} ({rung}) has cost {format_usd(paid)} so far, and another attempt may cost "
        f"{format_usd(ceiling or 0.0)}, but its max_cost_usd is {format_usd(rung.max_cost_usd)}"
    )


def _ladder_used_up(
    rungs: Sequence[CapacityRung],
    earlier: Sequence[JobSnapshot],
    passed: Sequence[str],
    max_run_s: int,
) -> BudgetExceededError:
    paid = paid_usd([each.to_dict() for each in earlier])
    least = min(attempt_ceiling(each, max_run_s=max_run_s) or 0.0 for each in rungs)
    return BudgetExceededError(
        "each tier of the capacity ladder lacks quota or has a max_cost_usd that is too low for another attempt",
        budget_usd=sum(each.max_cost_usd or 0.0 for each in rungs),
        needed_usd=paid + least,
        where="capacity_ladder",
        got="; ".join(passed),
        next_step="raise max_cost_usd of a tier, lower max_run, or request a larger quota",
    )


def _waited_s(job: JobSnapshot) -> float | None:
    wait = job.last_wait
    return None if wait is None or wait[1] is None else max(0.0, wait[1] - wait[0])


def _name(training_plan: str | None) -> str | None:
    return None if training_plan is None else plan_name(training_plan)


def _after(job: JobSnapshot) -> str:
    waited_s = _waited_s(job)
    return "" if waited_s is None else f" after {format_duration(waited_s)} of waiting"


def _max_wait_s(spec: TrainingJobSpec, rung: CapacityRung) -> int | None:
    if not rung.use_spot_instances:
        return None
    if rung.max_wait_s is None:
        return spec.max_wait or 2 * spec.max_run
    bounded = spec.max_run + rung.max_wait_s
    return min(spec.max_wait or bounded, bounded)


def _max_pending_s(spec: TrainingJobSpec, rung: CapacityRung) -> int | None:
    if spec.max_pending_time_in_seconds is not None:
        return spec.max_pending_time_in_seconds
    known = catalogue().types.get(rung.instance_type)
    is_bounded = rung.max_wait_s is not None and rung.max_wait_s >= _LEAST_PENDING_S
    if rung.use_spot_instances or not is_bounded or known is None or not known.accelerator:
        return None
    return min((rung.max_wait_s or 0) + _PENDING_MARGIN_S, _MOST_PENDING_S)
