"""Cost of a run in AWS Cost Explorer, found by the tags of its jobs. Pure.

Source: AWS Cost Explorer API, `GetCostAndUsage`. Costs have the tags `trainyard:dag`, `trainyard:run` and
`trainyard:deployment` only from the day on which the tags were activated as cost allocation tags. The data is updated
at least once a day, and is final after the month's invoice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.runs.run_tags import DAG, DEPLOYMENT, RUN, Owner
from trainyard.units import utc_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

METRIC = "UnblendedCost"
LAG = timedelta(days=1)
"""Longest time from the end of a day (UTC) until Cost Explorer has the costs of that day."""
CURRENCY = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBill:
    """AWS's bill of one run.

    Attributes:
        usd: total in USD; None if Cost Explorer has no cost with the run's tags.
        by_usage: USD by usage type, such as `USE1-Train:ml.m5.large`; the largest first.
        read_at: time of the request, epoch seconds.
        is_late_enough: whether Cost Explorer has the costs of the run's last day. If not, the total may still grow.
        is_final: whether the invoices of all days of the run are final.
    """

    usd: float | None
    by_usage: Mapping[str, float] = field(default_factory=dict)
    read_at: float
    is_late_enough: bool
    is_final: bool

    @classmethod
    def of(cls, answers: Iterable[Mapping[str, Any]], *, ended_at: float, now: float) -> Self:
        """Build the bill from the responses of `GetCostAndUsage`.

        Args:
            answers: all pages of the response.
            ended_at: end of the run, epoch seconds.
            now: time of the request, epoch seconds.

        Raises:
            ContractError: an amount is not in USD.
        """
        days = [day for answer in answers for day in answer["ResultsByTime"]]
        costs: dict[str, Decimal] = {}
        for usage, amount in _amounts(days):
            costs[usage] = costs.get(usage, Decimal(0)) + amount
        largest = sorted(costs.items(), key=lambda each: -each[1])
        return cls(
            usd=float(sum(costs.values())) if costs else None,
            by_usage={usage: float(amount) for usage, amount in largest},
            read_at=now,
            is_late_enough=datetime.fromtimestamp(now, UTC) >= complete_at(ended_at),
            is_final=bool(days) and not any(day.get("Estimated") for day in days),
        )


def request(
    *,
    dag_id: str,
    run_id: str,
    deployment: str | None = None,
    started_at: float,
    ended_at: float,
) -> dict[str, Any]:
    """Return the request for a run's cost: all days from its start to its end in UTC, by usage type.

    Args:
        dag_id: id of the run's DAG.
        run_id: id of the run.
        deployment: name of the run's Airflow deployment; None without a name.
        started_at: start of the run or of its first job, epoch seconds.
        ended_at: end of the run, epoch seconds.
    """
    tags = Owner(dag_id=dag_id, run_id=run_id, task_id="", deployment=deployment).tags()
    keys = [key for key in (DAG, RUN, DEPLOYMENT) if key in tags]
    wanted = [{"Tags": {"Key": key, "Values": [tags[key]]}} for key in keys]
    after = utc_day(ended_at) + timedelta(days=1)  # `End` is exclusive
    return {
        "TimePeriod": {"Start": f"{utc_day(started_at):%Y-%m-%d}", "End": f"{after:%Y-%m-%d}"},
        "Granularity": "DAILY",
        "Metrics": [METRIC],
        "Filter": {"And": wanted},
        "GroupBy": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }


def complete_at(ended_at: float) -> datetime:
    """Return the time from which Cost Explorer has all days of a run that ended at `ended_at` (epoch seconds).

    Worked: for a run that ended on the 3rd at 14:00 UTC, it is the 5th at 00:00 UTC.
    """
    return utc_day(ended_at) + timedelta(days=1) + LAG


def _amounts(days: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Decimal]]:
    for day in days:
        for group in day.get("Groups", ()):
            cost = group["Metrics"][METRIC]
            if cost["Unit"] != CURRENCY:
                raise ContractError(
                    f"Cost Explorer returned an amount that is not in {CURRENCY}",
                    where="GetCostAndUsage",
                    got=str(cost["Unit"]),
                    allowed=CURRENCY,
                    next_step=f"compare the bill by hand: the ledger has amounts in {CURRENCY} only",
                )
            yield group["Keys"][0], Decimal(cost["Amount"])
