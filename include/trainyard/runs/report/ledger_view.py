"""Everything paid that a run created, as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One paid thing of the run, as the table shows it."""

    kind: str
    name: str
    task_id: str
    state: str
    tone: str
    cost: str


def ledger_rows(record: RunRecord) -> list[LedgerRow]:
    """Return everything paid that the run created, what still costs money first."""
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
