"""Budget check before another attempt: cost of the earlier attempts and ceiling of the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import cluster_ceiling, job_cost, total_usd
from trainyard.errors import BudgetExceededError, SpecError
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainyard.specs.capacity_rung import CapacityRung


def paid_usd(jobs: Iterable[Mapping[str, Any]]) -> float:
    """Return the total cost of jobs in USD, from their snapshots as mappings. Jobs of unknown cost count as 0."""
    return total_usd(job_cost(each) for each in jobs)[0]


def attempt_ceiling(rung: CapacityRung, *, max_run_s: int) -> float | None:
    """Return the most in USD that one attempt on a capacity tier can cost; None if its type or price is unknown.

    Spot counts at the on-demand price. Worked example: 2 x ml.m5.large at 0.115 USD/h for 3600 s: 0.23 USD.
    """
    try:
        estimate = cluster_ceiling(
            {rung.instance_type: rung.instance_count or 1},
            max_run_s=max_run_s,
            training_plan=rung.training_plan,
        )
    except SpecError:
        return None
    return estimate.ceiling_usd


def left_over(limit_usd: float, *, paid: float, ceiling: float | None) -> bool | None:
    """Return whether another attempt fits into the limit; None if its ceiling is unknown."""
    return None if ceiling is None else paid + ceiling <= limit_usd


def check_budget(
    jobs: Iterable[Mapping[str, Any]], *, ceiling_usd: float | None, on: str, budget_usd: float
) -> None:
    """Check that another attempt fits into the task's budget. An attempt with an unknown ceiling passes.

    Args:
        jobs: snapshots of the earlier attempts as mappings.
        ceiling_usd: the most that the attempt can cost; None if it is unknown.
        on: the attempt's instances in words, for the error.
        budget_usd: the budget.

    Raises:
        BudgetExceededError: the attempt could exceed the budget; the error states the paid amount and the ceiling.
    """
    paid = paid_usd(jobs)
    if left_over(budget_usd, paid=paid, ceiling=ceiling_usd) is not False:
        return
    raise BudgetExceededError(
        "another attempt could cost more than the rest of the budget",
        budget_usd=budget_usd,
        needed_usd=paid + (ceiling_usd or 0.0),
        where="budget_usd",
        got=f"{format_usd(paid)} paid for earlier attempts; another one on {on} costs up to {format_usd(ceiling_usd)}",
        allowed=f"{format_usd(budget_usd)} for all attempts of the task",
        next_step="raise budget_usd or lower max_run, and clear the task: it resumes from the last checkpoint",
    )
