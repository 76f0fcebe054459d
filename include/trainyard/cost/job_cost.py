"""Cost of one job: its ceiling before it starts, its actual cost afterwards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.catalog.instances import Catalogue, catalogue
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """The most that a job can cost: all instances for the whole of `max_run`, at the on-demand price.

    Attributes:
        ceiling_usd: the cost; None if the price of the type is unknown.
        price_usd_per_hour: on-demand price of one instance, or the mean price of instances of several types; None if
            unknown.
        instance_type: the type, or the types separated by commas.
        max_run_s: longest run of the job.
        note: calculation in one sentence, with the date of the price.
    """

    ceiling_usd: float | None
    price_usd_per_hour: float | None
    instance_type: str
    instance_count: int
    max_run_s: int
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-safe data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """Cost of a job, by the catalogue's price.

    Attributes:
        cost_usd: billable seconds x instances x price; None if one of them is unknown.
        saved_usd: amount that spot saved compared with the same training seconds on demand; None if unknown.
        saved_fraction: 1 - (billable seconds / training seconds), AWS's formula for managed spot training; None
            if unknown or negative.
        note: price and its date, or the reason why the cost is unknown.
    """

    cost_usd: float | None
    saved_usd: float | None
    saved_fraction: float | None
    price_usd_per_hour: float | None
    instance_type: str | None
    instance_count: int
    billable_seconds: int | None
    training_seconds: int | None
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as JSON-safe data."""
        return asdict(self)


def cluster_ceiling(
    instances: Mapping[str, int],
    *,
    max_run_s: int,
    use_spot_instances: bool = False,
    training_plan: str | None = None,
) -> CostEstimate:
    """Return the most that a job on instances of one or more types can cost.

    A job in a training plan costs nothing: the plan is paid up front.

    Worked examples, for 3600 s:

    - 2 x ml.m5.large at 0.115 USD/h cost 2 x 0.115 = 0.23 USD.
    - 1 x ml.c5.xlarge at 0.204 and 2 x ml.g5.xlarge at 1.408 USD/h cost 0.204 + 2 x 1.408 = 3.02 USD.

    Args:
        instances: number of instances by type.
        max_run_s: longest run of the job in seconds.
        use_spot_instances: whether the job runs on spot instances. Their price is not known in advance, so
            the result is the cost of on-demand instances, with a note.
        training_plan: training plan that already covers the job's cost, or None.

    Raises:
        SpecError: an instance type is not in the catalogue.
    """
    table = catalogue()
    for name in instances:
        table.find(name)
    count, names = sum(instances.values()), ", ".join(instances)
    price = 0.0 if training_plan else mean_price(instances)
    if training_plan:
        note = in_plan(training_plan)
    elif price is None:
        note = f"the price of {_unpriced(instances, table)} is not in the catalogue of {table.date}"
    else:
        note = (
            f"{_priced(instances, table)} for at most "
            f"{format_duration(max_run_s)} (on demand, {table.region}, {table.date})"
        )
        if use_spot_instances:
            note += "; this is an upper bound, because spot instances cost less and waiting for them costs nothing"
    return CostEstimate(
        ceiling_usd=_amount(max_run_s, count, price),
        price_usd_per_hour=price,
        instance_type=names,
        instance_count=count,
        max_run_s=max_run_s,
        note=note,
    )


def job_cost(job: Mapping[str, Any]) -> JobCost:
    """Return the cost of a job, from its snapshot as a mapping (`JobSnapshot.to_dict`).

    Amounts are None for a type without a known price and for a job without billable seconds. `note` has the reason. A
    job in a training plan costs 0 USD. With instance groups, the price is the mean over all instances. An AutoML job
    costs the sum over its jobs, `children_usd`.
    """
    table = catalogue()
    name, count = job.get("instance_type"), int(job.get("instance_count") or 1)
    billable, training = job.get("billable_seconds"), job.get("training_seconds")
    instances = _instances(job)
    price = mean_price(instances)
    plan, children_usd = job.get("training_plan"), job.get("children_usd")
    price = 0.0 if plan else price
    fraction = 1 - billable / training if billable is not None and training else None
    saved_s = max(0, training - billable) if billable is not None and training else None
    note = in_plan(plan) if plan else _note(instances, billable, price, table)
    if children_usd is not None:
        note = f"the sum over its jobs (on demand, {table.region}, {table.date})"
    return JobCost(
        cost_usd=_amount(billable, count, price) if children_usd is None else children_usd,
        saved_usd=_amount(saved_s, count, price),
        saved_fraction=fraction if fraction is not None and fraction >= 0 else None,
        price_usd_per_hour=price,
        instance_type=name,
        instance_count=count,
        billable_seconds=billable,
        training_seconds=training,
        note=note,
    )


def spot_line(job: Mapping[str, Any]) -> str | None:
    """Return interruptions, waiting and savings of an ended spot job in one line.

    Return None for a job that was not on spot, and for a hyperparameter search. Example:
    `spot: 2 interruptions, waited 40 s, billed 2 min 00 s of 6 min 40 s, saved 70 % ($0.0179)`

    `job` is the job's snapshot as a mapping (`JobSnapshot.to_dict`).
    """
    if not job.get("is_spot") or job.get("kind") == "tuning":
        return None
    cost, waited_s = job_cost(job), job.get("waiting_seconds")
    count = int(job.get("interruptions") or 0)
    parts = [f"{count} interruption{'' if count == 1 else 's'}"]
    parts += [] if waited_s is None else [f"waited {format_duration(waited_s)}"]
    billed, ran = cost.billable_seconds, cost.training_seconds
    if billed is not None and ran is not None:
        parts.append(f"billed {format_duration(billed)} of {format_duration(ran)}")
    if cost.saved_fraction is not None:
        parts.append(f"saved {cost.saved_fraction:.0%} ({format_usd(cost.saved_usd)})")
    return "spot: " + ", ".join(parts)


def mean_price(instances: Mapping[str, int]) -> float | None:
    """Return the mean on-demand price of an instance in USD per hour.

    Return None if a price is unknown or if `instances` is empty.

    `instances` is the number of instances by type. Worked example: 1 x ml.c5.xlarge at 0.204 and 2 x
    ml.g5.xlarge at 1.408 USD/h have a mean price of (0.204 + 2 x 1.408) / 3 = 1.0067 USD/h.
    """
    table = catalogue()
    known = {name: price for name in instances if (price := _price(name, table)) is not None}
    if not instances or len(known) < len(instances):
        return None
    if len(known) == 1:
        return next(iter(known.values()))
    return sum(known[name] * count for name, count in instances.items()) / sum(instances.values())


def total_usd(costs: Iterable[JobCost]) -> tuple[float, bool]:
    """Return the sum of the known costs, and whether every cost was known."""
    return sum_usd(cost.cost_usd for cost in costs)


def sum_usd(amounts: Iterable[float | None]) -> tuple[float, bool]:
    """Return the sum of the known amounts in USD, and whether every amount was known."""
    all_amounts = list(amounts)
    return sum(each for each in all_amounts if each is not None), None not in all_amounts


def attempts_usd(job: Mapping[str, Any]) -> float | None:
    """Return the cost in USD of a task's last job, `job`, plus the cost of the job's `earlier_attempts`.

    Return None if the cost of one of them is unknown.
    """
    jobs = (*job.get("earlier_attempts", ()), job)
    return known_total(job_cost(each).cost_usd for each in jobs)


def known_total(amounts: Iterable[N | None]) -> N | None:
    """Return the sum of the amounts; None if one of them is unknown."""
    known = list(amounts)
    return None if None in known else sum(each for each in known if each is not None)


def cost_per_unit(cost_usd: float | None, units: float | None) -> float | None:
    """Return USD per token, epoch or sample; None if the cost is unknown, or the number of units unknown or 0."""
    return None if cost_usd is None or not units else cost_usd / units


def in_plan(training_plan: str) -> str:
    """Return the note on the cost of a job in a training plan."""
    return f"in training plan {training_plan.rpartition('/')[2]}, whose fee is paid up front"


def _amount(
    seconds: float | None, instances: int, price_usd_per_hour: float | None
) -> float | None:
    if seconds is None or price_usd_per_hour is None:
        return None
    return seconds * instances * price_usd_per_hour / SECONDS_PER_HOUR


def _instances(job: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of a job's instances by type; empty if the type is unknown."""
    counts: dict[str, int] = {}
    for each in job.get("instance_groups") or (job,):
        if name := each.get("instance_type"):
            counts[name] = counts.get(name, 0) + int(each.get("instance_count") or 1)
    return counts


def _price(instance_type: str, table: Catalogue) -> float | None:
    known = table.types.get(instance_type)
    return known.price_usd_per_hour if known else None


def _priced(instances: Mapping[str, int], table: Catalogue) -> str:
    """Return the instances with their prices in words. The catalogue must have the price of every type."""
    return " + ".join(
        f"{count} x {name} at {_price(name, table):g} USD/h" for name, count in instances.items()
    )


def _unpriced(instances: Mapping[str, int], table: Catalogue) -> str:
    """Return the names of the types without a price, as text; `the instances` if `instances` is empty."""
    return ", ".join(name for name in instances if _price(name, table) is None) or "the instances"


def _note(
    instances: Mapping[str, int], billable: int | None, price: float | None, table: Catalogue
) -> str:
    if billable is None:
        return "the service has not reported the billable seconds"
    if price is None:
        return f"the price of {_unpriced(instances, table)} is not in the catalogue of {table.date}"
    if len(instances) > 1:
        return f"{_priced(instances, table)} (on demand, {table.region}, {table.date})"
    return f"at {format_usd(price)} per instance and hour (on demand, {table.region}, {table.date})"
