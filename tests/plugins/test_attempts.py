"""Which attempt a task takes on."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard_airflow.jobs.attempts import NextAction, find_standing

OVER = ("Failed", "Stopped")


def job(status: str, attempt: int = 1) -> JobSnapshot:
    return JobSnapshot(kind="training", name=f"job-a{attempt}", arn="arn", status=status)


def standing(statuses: list[str], *, reported: int | None = None):
    return find_standing(
        lambda attempt: job(statuses[attempt - 1], attempt) if attempt <= len(statuses) else None,
        reported=reported,
    )


@pytest.mark.parametrize(
    ("statuses", "reported", "step", "attempt"),
    [
        ([], 0, NextAction.SUBMIT, 1),
        (["InProgress"], 0, NextAction.ATTACH, 1),
        (["Completed"], 0, NextAction.ADOPT, 1),
        (["Stopping"], 0, NextAction.AWAIT_END, 1),
        (["Stopped"], 0, NextAction.SUBMIT, 2),
        (["Failed"], 0, NextAction.REPORT, 1),
        (["Failed"], 1, NextAction.SUBMIT, 2),
        (["Failed"], None, NextAction.SUBMIT, 2),
        (["Failed", "Failed"], 1, NextAction.REPORT, 2),
        (["Failed", "Stopped", "InProgress"], 1, NextAction.ATTACH, 3),
        (["Failed", "Completed"], 1, NextAction.ADOPT, 2),
    ],
    ids=str,
)
def test_standing_follows_from_the_attempts_there_are(statuses, reported, step, attempt):
    found = standing(statuses, reported=reported)

    assert (found.step, found.attempt) == (step, attempt)
    assert [each.status for each in found.earlier] == statuses[: attempt - 1]


@given(
    over=st.lists(st.sampled_from(OVER), max_size=6),
    last=st.sampled_from(["InProgress", "Stopping", "Completed", None]),
)
def test_at_most_one_new_job_and_only_after_all_are_over(over, last):
    statuses = [*over, *([last] if last else [])]
    found = standing(statuses, reported=None)

    assert (found.step is NextAction.SUBMIT) == (last is None)
    assert found.attempt == len(over) + 1
