"""`JobPlace`: capacity and cost limits of one job, decided before its creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard_airflow.jobs.ladder import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """Capacity and limits; a member is None if it does not apply.

    Attributes:
        placement: entry of `capacity_ladder` (rung) that the job uses.
        max_billed_s: seconds that each instance may be billed before the job is stopped at its task's cost cap.
        usd_per_s: price of all instances in USD per second, if there is a cost cap.
        plan_stops: times, in epoch seconds, at which the job is stopped because a window of its training plan
            ends. Empty if there are none.
        paid_usd: cost of the task's earlier searches or AutoML jobs, in USD.
        max_runtime_s: seconds that a search or an AutoML job may last within the rest of its budget.
    """

    placement: Placement | None = None
    max_billed_s: float | None = None
    usd_per_s: float | None = None
    plan_stops: tuple[float, ...] = ()
    paid_usd: float | None = None
    max_runtime_s: int | None = None

    def bounded_run_s(self, max_run_s: int) -> int:
        """Return the smaller of `max_run_s` and the number of seconds that the rest of the cost cap pays for.

        Without a cost cap, the result is `max_run_s`. With the result as the job's `max_run`, the service itself
        ends the job at the cap at the latest, even if no trigger watches the job.
        """
        return max_run_s if self.max_billed_s is None else min(max_run_s, int(self.max_billed_s))

    def facts(self) -> dict[str, Any]:
        """Return the capacity and the limits as facts for the job's result, JSON-safe."""
        limits = {
            "max_billed_s": self.max_billed_s,
            "usd_per_s": self.usd_per_s,
            "plan_stops": list(self.plan_stops) or None,
            "paid_usd": self.paid_usd,
            "max_runtime_s": self.max_runtime_s,
        }
        rung = self.placement.facts() if self.placement else {}
        return {**rung, **{name: value for name, value in limits.items() if value is not None}}


UNLIMITED = JobPlace()
