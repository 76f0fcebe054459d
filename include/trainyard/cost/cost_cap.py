"""Cost cap of a task, converted to the billed time after which its next job must stop. Pure arithmetic.

A budget limits the possible cost: a run that could cost more does not start. A cap limits the actual cost:
a run that could cost more starts, and is stopped in time (docs/adr/0067).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.errors import BudgetExceededError, Finding, SpecError
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCap:
    """The most that all jobs of a task may be billed, at the on-demand price.

    Attributes:
        max_cost_usd: the cap.
        stop_reserve_s: billed seconds that are reserved for the stop of the job. They cover the time until
            Trainyard detects the limit, the two minutes after SIGTERM, the last checkpoint and the upload of
            the model. They also cover billed time that does not count towards `max_run`, such as downloads.
    """

    max_cost_usd: float
    stop_reserve_s: int

    def left_s(self, *, paid_usd: float, usd_per_s: float) -> float:
        """Return the seconds that the next job may be billed before it must stop; negative if nothing is left.

        Worked example: 0.20 of 1 USD are paid. 2 x ml.m5.large at 0.115 USD/h with a reserve of 300 s may be billed
        0.80 / 0.23 x 3600 - 300 = 12,221.7 s.

        Args:
            paid_usd: cost of the task's earlier jobs.
            usd_per_s: on-demand price of all instances of the job. The spot price is not known in advance.
        """
        return (self.max_cost_usd - paid_usd) / usd_per_s - self.stop_reserve_s

    def job_limit_s(
        self, *, paid_usd: float, usd_per_s: float | None, on: str, least_s: int = LEAST_RUN_S
    ) -> float:
        """Return the seconds that a new job may be billed before it must stop, as calculated by the method `left_s`.

        Args:
            paid_usd: cost of the task's earlier jobs.
            usd_per_s: on-demand price of all instances of the job; None if unknown.
            on: the job's instances in words, for the error.
            least_s: shortest useful run of the job in seconds.

        Raises:
            SpecError: the price is unknown, so the cap cannot be enforced.
            BudgetExceededError: the rest of the cap does not pay for the shortest useful run and the stop.
        """
        if usd_per_s is None:
            raise SpecError(unpriced(on, self.max_cost_usd), subject="cost cap")
        left_s = self.left_s(paid_usd=paid_usd, usd_per_s=usd_per_s)
        if left_s >= least_s:
            return left_s
        needed_s = least_s + self.stop_reserve_s
        raise BudgetExceededError(
            "the cost cap leaves too little for another job",
            budget_usd=self.max_cost_usd,
            needed_usd=paid_usd + needed_s * usd_per_s,
            where="max_cost_usd",
            got=f"{format_usd(paid_usd)} paid for earlier jobs; the shortest job and its stop "
            f"({format_duration(needed_s)} on {on}) cost {format_usd(needed_s * usd_per_s)}",
            allowed=f"{format_usd(self.max_cost_usd)} for all jobs of the task",
            next_step="start a run with a higher max_cost_usd or cheaper instances; the checkpoints are kept",
        )


def unpriced(on: str, max_cost_usd: float) -> Finding:
    """Return the error that a cap cannot be enforced on instances of unknown price."""
    return Finding(
        where="max_cost_usd",
        what=f"cannot be enforced, because the catalogue has no price for {on}",
        got=format_usd(max_cost_usd),
        next_step="choose an instance type with a known price, or remove max_cost_usd and limit the run time",
    )


def usd_per_s(price_usd_per_hour: float | None, instance_count: int) -> float | None:
    """Return the price of all instances in USD per second; None if the price is unknown."""
    if price_usd_per_hour is None:
        return None
    return price_usd_per_hour * instance_count / SECONDS_PER_HOUR
