"""A run that left something to pay for does not pass."""

from __future__ import annotations

import pytest

from chaos.audit import check_ledger, check_run, check_strikes
from chaos.jobs import ObservedAttempt
from chaos.schedule import Strike, StrikeKind, StrikeMoment
from trainyard.task_ids import TaskId

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
