"""Verdicts as a table: rules with issues first, then rules without, then rules that were not evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Severity, shortened
from trainyard.rules.evaluation import evidence, worst_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NONE = "-"
_MOST_TEXT = 160
_HEAD = ("rule", "verdict", "severity", "step", "evidence, or why it was not evaluated")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """Row of the table for one verdict.

    Attributes:
        tone: `bad`, `warn`, `good`, or empty if the rule was not evaluated.
    """

    name: str
    verdict: str
    severity: str
    step: str
    text: str
    tone: str


def verdict_rows(verdicts: Iterable[Mapping[str, Any]]) -> list[VerdictRow]:
    """Return one row per verdict (`Verdict.to_dict()`), the worst first, otherwise in their order."""
    rows = [_row(each) for each in verdicts]
    order = {"bad": 0, "warn": 1, "good": 2, "": 3}
    return sorted(rows, key=lambda row: order[row.tone])


def summary_sentence(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence with the number of rules for each outcome.

    The outcomes are: with issues, without issues, not evaluated, and failed. The last one is omitted if no rule
    failed. If no rule was evaluated and none failed, the sentence reports that there was nothing to evaluate.
    """
    rows = verdict_rows(verdicts)
    if not any(row.tone for row in rows):
        return f"nothing to evaluate: {len(rows)} rules, none of which had its input"
    found = sum(row.verdict == "IssuesFound" for row in rows)
    broken = sum(row.verdict == "Error" for row in rows)
    skipped = sum(not row.tone for row in rows)
    fine = len(rows) - found - skipped - broken
    failed = f", {broken} failed" if broken else ""
    return f"{found} with issues, {fine} without, {skipped} not evaluated{failed}"


def table_lines(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table as aligned text."""
    rows = [
        (row.name, row.verdict, row.severity, row.step, shortened(row.text, limit=_MOST_TEXT))
        for row in verdict_rows(verdicts)
    ]
    widths = [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(4)]
    for row in [_HEAD, *rows]:
        cells = [text.ljust(width) for text, width in zip(row[:4], widths, strict=True)]
        yield "  ".join([*cells, row[4]]).rstrip()


def _row(verdict: Mapping[str, Any]) -> VerdictRow:
    issues = verdict["issues"]
    if issues:
        first = issues[0]
        worst = worst_of(Severity(each["severity"]) for each in issues)
        more = verdict["num_issues"] - 1
        return VerdictRow(
            name=verdict["name"],
            verdict=str(verdict["status"]),
            severity=str(worst),
            step=str(first["step"]),
            text=evidence(rank=first["rank"], key=first["key"], text=first["text"])
            + (f" (and {more} more)" if more else ""),
            tone="bad" if worst is Severity.ERROR else "warn",
        )
    why = verdict["not_evaluated"]
    return VerdictRow(
        name=verdict["name"],
        verdict="not evaluated" if why else str(verdict["status"]),
        severity=NONE,
        step=NONE,
        text=str(verdict["error"] or why or _fine(verdict)),
        tone="warn" if verdict["error"] else "" if why else "good",
    )


def _fine(verdict: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in verdict["summary"].items())
    judged = f"evaluated {verdict['num_judged']:,} times"
    return f"{judged}; {numbers}" if numbers else judged
