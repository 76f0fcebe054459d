"""Ledger section of the page: billed resources that a run created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """Row of one billed resource in the table; all values are text."""

    kind: str
    name: str
    task_id: str
    state: str
    tone: str
    cost: str


def ledger_rows(record: RunRecord) -> list[LedgerRow]:
    """Return a row per billed resource that the run created. Unsettled ones, which may still cost money, are first."""
    entries = (record.ledger or {}).get("entries", ())
    ordered = sorted(entries, key=lambda each: each.get("settled_at") is not None)
    return [_ledger_row(each) for each in ordered]


def _ledger_row(entry: Mapping[str, Any]) -> LedgerRow:
    is_settled = entry.get("settled_at") is not None
    return LedgerRow(
        kind=str(entry["kind"]),
        name=str(entry["name"]),
        task_id=str(entry.get("task_id") or ""),
        state=str(entry.get("status") or "ended") if is_settled else "may still cost money",
        tone="good" if is_settled else "bad",
        cost=format_usd(entry.get("cost_usd")),
    )
