"""Cost cap of a task: how long its next job may be billed before it has to stop. Pure arithmetic.

A cap bounds what is paid, a budget what could be paid: a run that may cost more than its budget does not start, one
that may cost more than its cap starts and is stopped in time (docs/adr/0067).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.errors import BudgetExceededError, Finding, SpecError
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCap:
    """The most that all jobs of a task may be billed, by the on-demand price.

    Attributes:
        stop_reserve_s: seconds of the job's instances that are kept back for its stop: SIGTERM with its two minutes,
            the last checkpoint, the upload of the model. It also pays for what the service bills and does not count
            towards `max_run`, such as downloads, and for the time until the follower notices.
    """

    max_cost_usd: float
    stop_reserve_s: int

    def left_s(self, *, paid_usd: float, usd_per_s: float) -> float:
        """Return the seconds that the next job may be billed before it has to stop; negative if nothing is left.

        Worked example: of 1 USD, 0.20 are paid. 2 x ml.m5.large at 0.115 USD/h with 300 s of reserve have
        0.80 / 0.23 x 3600 - 300 = 12,221.7 s.

        Args:
            paid_usd: what the task's earlier jobs were billed.
            usd_per_s: of all instances of the job; that of spot is not known, so on demand.
        """
        return (self.max_cost_usd - paid_usd) / usd_per_s - self.stop_reserve_s

    def job_limit_s(
        self, *, paid_usd: float, usd_per_s: float | None, on: str, least_s: int = LEAST_RUN_S
    ) -> float:
        """Return `left_s` of a job that is about to be created.

        Args:
            paid_usd: what the task's earlier jobs were billed.
            usd_per_s: of all instances of the job; None if it is not known.
            on: the job's instances, for the message.
            least_s: that the job must be able to run.

        Raises:
            SpecError: the price is not known, so that the cap cannot hold.
            BudgetExceededError: what is left does not pay for the shortest job and its stop.
        """
        if usd_per_s is None:
            raise SpecError([unpriced(on, self.max_cost_usd)], subject="cost cap")
        left_s = self.left_s(paid_usd=paid_usd, usd_per_s=usd_per_s)
        if left_s >= least_s:
            return left_s
        needed_s = least_s + self.stop_reserve_s
        raise BudgetExceededError(
            "the cost cap leaves too little for another job",
            budget_usd=self.max_cost_usd,
            needed_usd=paid_usd + needed_s * usd_per_s,
            where="max_cost_usd",
            got=f"{format_usd(paid_usd)} paid, and {format_usd(needed_s * usd_per_s)} for {format_duration(needed_s)} "
            f"on {on}, the shortest job and its stop",
            allowed=f"{format_usd(self.max_cost_usd)} for all jobs of the task",
            next_step="start a run with a higher max_cost_usd, or cheaper instances; checkpoints stay",
        )


def unpriced(on: str, max_cost_usd: float) -> Finding:
    """Return the finding that a cap cannot hold on instances whose price is not known."""
    return Finding(
        where="max_cost_usd",
        what=f"cannot be held: the catalogue has no price of {on}",
        got=format_usd(max_cost_usd),
        next_step="take a type with a known price, or drop max_cost_usd and bound max_run",
    )


def usd_per_s(price_usd_per_hour: float | None, instance_count: int) -> float | None:
    """Return the price of a second of all instances; None if that of one is not known."""
    if price_usd_per_hour is None:
        return None
    return price_usd_per_hour * instance_count / SECONDS_PER_HOUR
