"""Reconciliation of one run: estimate, ledger and bill. Pure."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trainyard.bill.cost_explorer import complete_at
from trainyard.runs.run_tags import DAG, DEPLOYMENT, RUN
from trainyard.units import format_usd, format_utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.bill.cost_explorer import RunBill
    from trainyard.runs.record import RunRecord

TOLERANCE = 0.01
"""Relative difference between ledger and bill that needs no explanation: Cost Explorer rounds hours of usage."""


def awaiting_bill(record: RunRecord, *, deployment: str | None = None) -> RunRecord:
    """Return the record of a run that just ended on AWS, with the data for its bill.

    The data are `cost.bill_due_at` (epoch seconds) and `cost.deployment` (name of the Airflow deployment). The
    record of a run without an end or without jobs is returned unchanged.
    """
    if record.ended_at is None or not record.is_billed:
        return record
    due_at = complete_at(record.ended_at).timestamp()
    return replace(record, cost={**record.cost, "bill_due_at": due_at, "deployment": deployment})


def began_at(record: RunRecord) -> float:
    """Return the earliest start in the record, of the run or of one of its jobs, in epoch seconds.

    A job can have started before the run, because Airflow resets the start of a cleared run. The result is 0 if
    no start is known.
    """
    entries = (record.ledger or {}).get("entries", ())
    starts = [record.started_at, *(job.created_at for job in record.jobs)]
    starts += [each.get("intended_at") for each in entries]
    return min((each for each in starts if each is not None), default=0.0)


def reconciled(record: Mapping[str, Any], bill: RunBill) -> dict[str, Any]:
    """Return a run's report.json with `cost.bill` and `cost.bill_error`, the relative error bill / ledger - 1."""
    cost, ledger = dict(record.get("cost") or {}), ledger_usd(record)
    error = bill.usd / ledger - 1 if bill.usd is not None and ledger else None
    return {**record, "cost": {**cost, "bill": asdict(bill), "bill_error": error}}


def ledger_usd(record: Mapping[str, Any]) -> float | None:
    """Return the total of a run's ledger; without a ledger, the total cost of its jobs, or None if that is unknown."""
    ledger = record.get("ledger") or {}
    total: float | None = ledger.get("total_usd", (record.get("cost") or {}).get("total_usd"))
    return total


def lines(record: Mapping[str, Any], bill: RunBill, *, ended_at: float) -> Iterator[str]:
    """Yield the printed lines of the reconciliation, and the next step if bill and ledger differ."""
    cost, ledger = record.get("cost") or {}, ledger_usd(record)
    expected = (cost.get("estimate_usd") or {}).get("expected")
    yield f"run       {record['dag_id']} {record['run_id']}"
    yield f"estimate  {format_usd(expected)}"
    yield f"ledger    {format_usd(ledger)}"
    if bill.usd is None:
        yield "billed    Cost Explorer has no cost with the run's tags"
        yield from _why_nothing(ended_at, bill, deployment=cost.get("deployment"))
        return
    beside = f", {bill.usd / ledger - 1:+.1%} against the ledger" if ledger else ""
    state = "final" if bill.is_final else "estimated until the month's invoice"
    yield f"billed    {format_usd(bill.usd)}{beside} ({state})"
    yield from (f"          {format_usd(usd)} {usage}" for usage, usd in bill.by_usage.items())
    if not bill.is_late_enough:
        yield _too_early(ended_at)
    elif ledger and abs(bill.usd / ledger - 1) > TOLERANCE:
        yield (
            "The ledger is list price times billable seconds. Check the account's discounts, the date and region of "
            "`trainyard prices`, the ledger's unsettled entries, and usage other than training in the list above"
        )


def _why_nothing(ended_at: float, bill: RunBill, *, deployment: str | None) -> Iterator[str]:
    if not bill.is_late_enough:
        yield _too_early(ended_at)
        return
    tags = f"{DAG}, {RUN} and {DEPLOYMENT}" if deployment else f"{DAG} and {RUN}"
    yield (
        f"Activate {tags} as cost allocation tags (Billing and Cost Management, in the payer's account): "
        "costs have these tags from that day on"
    )


def _too_early(ended_at: float) -> str:
    at = format_utc(complete_at(ended_at).timestamp())
    return f"Cost Explorer has all of the run's days from {at} UTC: run the command again then"
