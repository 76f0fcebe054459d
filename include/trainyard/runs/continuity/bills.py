"""Bills of the jobs, and each attempt's share of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.runs.continuity.document import Bill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.runs.continuity.attempts import Life
    from trainyard.runs.record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BillShare:
    """One attempt's share of its job's bill. Unknown amounts are None."""

    billed_seconds: float | None
    billed_usd: float | None
    saved_usd: float | None


def bills_of(jobs: Sequence[JobRecord]) -> list[Bill]:
    """Return one bill per job, with the cost that `trainyard.cost` calculated."""
    return [_bill(job) for job in jobs]


def shares_of(lives: Sequence[Life]) -> list[BillShare]:
    """Return each attempt's share of its job's bill, in proportion to its time on instances.

    If no attempt of a job had instances, their shares are equal.
    """
    on_instances: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for life in lives:
        on_instances[life.job.name] += life.seconds_on_instances
        count[life.job.name] += 1
    return [
        _share(
            _bill(life.job),
            life.seconds_on_instances / on_instances[life.job.name]
            if on_instances[life.job.name]
            else 1 / count[life.job.name],
        )
        for life in lives
    ]


def _bill(job: JobRecord) -> Bill:
    training, billable = job.training_seconds, job.billable_seconds
    is_known = billable == 0 or (training is not None and billable is not None)
    price = job.cost.get("price_usd_per_hour")
    saved_usd = job.cost.get("saved_usd")
    return Bill(
        job=job.name,
        instance_type=job.instance_type,
        instance_count=job.instance_count,
        price_usd_per_hour=price,
        training_seconds=training,
        billable_seconds=billable,
        saved_seconds=max(0, (training or 0) - (billable or 0)) if is_known else None,
        billed_usd=job.cost.get("cost_usd"),
        saved_usd=0.0 if saved_usd is None and is_known and price is not None else saved_usd,
    )


def _share(bill: Bill, fraction: float) -> BillShare:
    def part(amount: float | None) -> float | None:
        return None if amount is None else amount * fraction

    return BillShare(
        billed_seconds=part(bill.billable_seconds),
        billed_usd=part(bill.billed_usd),
        saved_usd=part(bill.saved_usd),
    )
