"""Rules section of the page: one sentence, and one row per rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.rules.table import VerdictRow, summary_sentence, verdict_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord

_BY = {
    "statistics": "; judged while it trained, by the statistics of its ranks",
    "log": "; judged by the training log",
    "statistics and log": "; judged by the statistics of its ranks and by the training log",
}
_TONES = {"error": "bad", "warning": "warn", None: "good"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    """Rules section: the evaluated rules, and those that had no data."""

    sentence: str
    tone: str
    judged: tuple[VerdictRow, ...]
    not_judged: tuple[VerdictRow, ...]
    again: str


def rules_view(record: RunRecord) -> RulesView | None:
    """Return the section; None if no rule was evaluated, unless the run has its own script."""
    if record.rules is None or not record.rules["verdicts"]:
        return _nothing_to_evaluate() if record.conf.get("entry_point") else None
    rows = verdict_rows(record.rules["verdicts"])
    return RulesView(
        sentence=summary_sentence(record.rules["verdicts"]) + _judged_by(record.rules),
        tone=_TONES[record.rules["worst"]] if any(row.tone for row in rows) else "warn",
        judged=tuple(row for row in rows if row.tone),
        not_judged=tuple(row for row in rows if not row.tone),
        again=f"make rules RUN={record.run_id}",
    )


def _nothing_to_evaluate() -> RulesView:
    """Return the section for a user's script that wrote no data for the rules."""
    return RulesView(
        sentence="nothing to evaluate: the script does not use trainyard_watch (docs/own_scripts.md)",
        tone="warn",
        judged=(),
        not_judged=(),
        again="",
    )


def _judged_by(rules: Mapping[str, Any]) -> str:
    """Return the source of the verdicts, and the jobs that were not watched to their end, in words."""
    unwatched = ", ".join(rules.get("unwatched", ()))
    by = _BY.get(str(rules.get("judged")), "")
    return f"{by} (nothing watched job {unwatched} to its end)" if unwatched else by
