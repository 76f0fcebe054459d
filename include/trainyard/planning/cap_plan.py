"""Split of a run's cost cap into one part per task, so that each task leaves enough for the later tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainyard.cost.cost_cap import unpriced, usd_per_s
from trainyard.errors import Finding, Severity, SpecError
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.task_ids import TaskId
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.cost.job_cost import CostEstimate
    from trainyard.specs.base_run_conf import BaseRunConf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The most that a run can cost.

    Attributes:
        ceiling_usd: cost of all attempts of all jobs, each for its longest time; None if a price is unknown.
        once_usd: the same with one attempt per job.
        known_usd: as ceiling_usd, without the jobs of unknown price.
        search_usd: the search's part of ceiling_usd; 0 without a search, None if its price is unknown.
        note: calculation of the ceiling, in words.
    """

    ceiling_usd: float | None
    once_usd: float | None
    known_usd: float
    search_usd: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapPlan:
    """Parts of a cap in USD, one per task. The part of a task that the run does not have is 0.

    Each part, except the search's, includes the cost of the seconds that are reserved for stopping the task's
    job (`stop_reserve_s`).

    Attributes:
        max_cost_usd: the cap.
        shard_usd: cost of the sharding job for its longest run.
        smoke_usd: cost of the smoke test for its longest run.
        search_usd: the most that the search may cost.
        least_training_usd: cost of the shortest training on the most expensive tier.
        evaluation_usd: cost of the evaluation for its longest run; reserved until the training has ended.
        unpriced_types: instance types of the run without a known price.
    """

    max_cost_usd: float
    shard_usd: float
    smoke_usd: float
    search_usd: float
    least_training_usd: float
    evaluation_usd: float
    unpriced_types: tuple[str, ...] = ()

    @property
    def after_sharding_usd(self) -> float:
        """Amount that sharding may not spend, because the later tasks need it."""
        return self.smoke_usd + self.search_usd + self.least_training_usd + self.evaluation_usd

    @property
    def least_usd(self) -> float:
        """Smallest cap that pays for the shortest run."""
        return self.shard_usd + self.after_sharding_usd


def cap_plan(
    conf: BaseRunConf, estimates: Mapping[str, CostEstimate], *, search_usd: float = 0.0
) -> CapPlan | None:
    """Return the parts of a conf's cap; None without a cap. Jobs without a known price count as 0.

    Args:
        conf: the run's conf.
        estimates: cost of one attempt of each job by task id, including the evaluation after a stopped training.
        search_usd: the most that a search may cost.
    """
    if conf.max_cost_usd is None:
        return None

    def part(task_id: TaskId, run_s: int | None = None) -> float:
        estimate = estimates.get(task_id)
        if estimate is None:
            return 0.0
        rate = usd_per_s(estimate.price_usd_per_hour, estimate.instance_count) or 0.0
        return rate * ((run_s or estimate.max_run_s) + conf.stop_reserve_s)

    return CapPlan(
        max_cost_usd=conf.max_cost_usd,
        shard_usd=part(TaskId.SHARD),
        smoke_usd=part(TaskId.SMOKE_TEST),
        search_usd=search_usd,
        least_training_usd=part(TaskId.TRAIN, LEAST_RUN_S),
        evaluation_usd=part(TaskId.EVALUATE),
        unpriced_types=tuple(
            sorted(
                {
                    each.instance_type
                    for each in estimates.values()
                    if each.price_usd_per_hour is None
                }
            )
        ),
    )


def keep_cap(
    conf: BaseRunConf, plan: CapPlan | None, cost: RunCost
) -> tuple[RunCost, Sequence[Finding]]:
    """Return the most that a run can cost under its cap, and a warning if the cap may stop the training early.

    Args:
        conf: the run's conf.
        plan: the parts of its cap; None without a cap.
        cost: the cost of the run without its cap.

    Raises:
        SpecError: the cap is too low for the shortest run, or a price is unknown.
    """
    findings = list(_findings(conf, plan, cost)) if plan else []
    if any(each.severity is Severity.ERROR for each in findings):
        raise SpecError(findings, subject="run conf")
    return within_cap(cost, conf.max_cost_usd), findings


def _findings(conf: BaseRunConf, plan: CapPlan, cost: RunCost) -> Iterator[Finding]:
    """Yield an error if a price is unknown, or if the cap is below the cost of the shortest run.

    Otherwise, yield a warning if the cap may stop the training before its last step.
    """
    if plan.unpriced_types:
        yield unpriced(", ".join(plan.unpriced_types), plan.max_cost_usd)
        return
    parts = {
        "the sharding": plan.shard_usd,
        "the smoke test": plan.smoke_usd,
        "the search": plan.search_usd,
        "the shortest training": plan.least_training_usd,
        "the evaluation": plan.evaluation_usd,
    }
    words = ", ".join(f"{format_usd(usd)} for {name}" for name, usd in parts.items() if usd)
    if plan.least_usd > plan.max_cost_usd:
        yield Finding(
            where="max_cost_usd",
            what="is less than the cost of the shortest run",
            got=format_usd(plan.max_cost_usd),
            allowed=f"at least {format_usd(plan.least_usd)} ({words}; each part"
            f"{' except the search' if plan.search_usd else ''} includes {conf.stop_reserve_s} s to stop its job)",
            next_step="raise max_cost_usd, lower evaluation_max_run_s, or choose cheaper instances",
        )
    elif cost.once_usd is not None and cost.once_usd > plan.max_cost_usd:
        yield Finding(
            where="max_cost_usd",
            what="may stop the training before its last step",
            got=f"{format_usd(plan.max_cost_usd)} ({format_usd(plan.evaluation_usd)} of it for the evaluation); if "
            f"each job runs once until its time limit, the run costs {format_usd(cost.once_usd)}",
            severity=Severity.WARNING,
            next_step="raise max_cost_usd to train to the end; otherwise the model of the stopped training is "
            "evaluated and registered",
        )


def within_cap(cost: RunCost, max_cost_usd: float | None) -> RunCost:
    """Return the most that a run can cost under its cap; the cost itself without a cap."""
    if max_cost_usd is None or cost.known_usd <= max_cost_usd:
        return cost
    ceiling = None if cost.ceiling_usd is None else min(cost.ceiling_usd, max_cost_usd)
    return replace(
        cost,
        ceiling_usd=ceiling,
        known_usd=max_cost_usd,
        note=f"at most {format_usd(max_cost_usd)}, its cost cap (without it {format_usd(cost.known_usd)}; {cost.note})",
    )
