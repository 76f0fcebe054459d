"""A run that left something to pay for does not pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chaos.audit import check_ledger, check_rules, check_run, check_strikes
from chaos.jobs import ObservedAttempt
from chaos.schedule import Strike, StrikeKind, StrikeMoment
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from pathlib import Path

JOB = ObservedAttempt(name="train-0123456789", status="Completed", created_at=0.0, ended_at=60.0)
SETTLED = {"name": JOB.name, "settled_at": 61.0}


def test_a_ledger_whose_entries_are_settled_is_empty() -> None:
    check = check_ledger([SETTLED], [JOB])
    assert (check.holds, check.found) == (True, "all entries are settled (1)")


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([{**SETTLED, "settled_at": None}], "train-0123456789 is not settled"),
        ([SETTLED, {"name": "lost", "settled_at": None}], "lost is not settled"),
        ([], "train-0123456789 is not in it"),
    ],
    ids=["open", "orphan", "unknown job"],
)
def test_a_ledger_that_is_open_or_incomplete_is_told(
    entries: list[dict[str, object]], found: str
) -> None:
    check = check_ledger(entries, [JOB])
    assert (check.holds, check.found) == (False, found)


def test_a_strike_that_found_no_moment_is_told() -> None:
    strike = Strike(
        number=3, kind=StrikeKind.ENGINE, moment=StrikeMoment(task=TaskId.TRAIN, step=9)
    )
    assert check_strikes([]).holds
    assert check_strikes([strike]).found == "not executed: 3. engine killed, at step 9"


@pytest.mark.parametrize("state", ["failed", "running"])
def test_only_a_run_that_succeeded_passes(state: str) -> None:
    assert check_run("success").holds
    assert not check_run(state).holds


def verdict(rule: str, severity: str) -> dict[str, Any]:
    issue = {"step": 9, "severity": severity, "text": "why"}
    return {"name": rule, "rule": rule, "issues": [issue]}


@pytest.mark.parametrize(
    ("rules", "holds", "found"),
    [
        ([verdict("LossNotDecreasing", "error")], False, "LossNotDecreasing at step 9: why"),
        ([verdict("Straggler", "warning")], True, "no issue of severity error"),
        ([verdict("Stalled", "error")], True, "no issue of severity error"),
        (None, True, "none was evaluated"),
    ],
    ids=["an error", "a warning", "a hanging host", "rules off"],
)
def test_a_healthy_training_has_no_issue_of_severity_error(
    tmp_path: Path, rules: list[dict[str, Any]] | None, holds: bool, found: str
) -> None:
    document = None if rules is None else {"verdicts": rules}
    (tmp_path / "report.json").write_text(json.dumps({"rules": document}))
    check = check_rules(tmp_path)
    assert (check.holds, check.found) == (holds, found)


def test_rules_of_a_run_without_a_report_do_not_pass(tmp_path: Path) -> None:
    check = check_rules(tmp_path)
    assert not check.holds
    assert "report.json" in check.found
