"""Bill of the jobs: seconds x instances x the price that report.json names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from verify.lives import Lived


def bill(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's bill. Worked: 90 s on 2 instances at 0.115 USD an hour are 0.00575 USD."""
    training, billable = job["training_seconds"], job["billable_seconds"]
    price, count = job["cost"].get("price_usd_per_hour"), job["instance_count"]
    saved = None if training is None or billable is None else max(0, training - billable)

    def usd(seconds: float | None) -> float | None:
        return None if seconds is None or price is None else seconds / 3600 * count * price

    return {
        "job": job["name"],
        "instance_type": job["instance_type"],
        "instance_count": count,
        "price_usd_per_hour": price,
        "training_seconds": training,
        "billable_seconds": billable,
        "saved_seconds": saved,
        "billed_usd": usd(billable),
        "saved_usd": usd(saved),
    }


def paid(life: Lived, of_its_job: Sequence[Lived]) -> dict[str, float | None]:
    """Return an attempt's share of its job's bill, by its seconds on instances."""
    whole = sum(each.on_instances for each in of_its_job)
    share = life.on_instances / whole if whole else 1 / len(of_its_job)
    total = bill(life.job)

    def part(name: str) -> float | None:
        return None if total[name] is None else total[name] * share

    return {
        "billed_seconds": part("billable_seconds"),
        "billed_usd": part("billed_usd"),
        "saved_usd": part("saved_usd"),
    }


def summed(amounts: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of the amounts is not known."""
    result: float = 0
    for each in amounts:
        if each is None:
            return None
        result += each
    return result
