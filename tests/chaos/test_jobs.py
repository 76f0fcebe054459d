"""What is wrong with a run's jobs is found, and a run with nothing wrong is left in peace."""

from __future__ import annotations

import pytest

from chaos.jobs import ObservedAttempt, faults_of


def attempt(
    number: int = 1,
    status: str = "Completed",
    *,
    created_at: float = 0.0,
    ended_at: float | None = 60.0,
    task: str = "train",
) -> ObservedAttempt:
    suffix = f"-a{number}" if number > 1 else ""
    return ObservedAttempt(
        name=f"train-end-to-end-{task}{suffix}-0123456789",
        status=status,
        created_at=created_at,
        ended_at=ended_at,
    )


def test_attempts_of_one_logical_job_have_one_name() -> None:
    assert {attempt(1).logical, attempt(2).logical} == {"train-end-to-end-train"}


def test_a_failed_attempt_followed_by_a_completed_one_is_well() -> None:
    jobs = [
        attempt(1, "Failed"),
        attempt(2, created_at=61.0, ended_at=90.0),
        attempt(task="evaluate", created_at=91.0, ended_at=95.0),
    ]
    assert list(faults_of(jobs)) == []


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        ([], "the run started no job"),
        ([attempt(1), attempt(2, created_at=61.0)], "2 completed attempts, not 1"),
        ([attempt(1, "Failed")], "0 completed attempts, not 1"),
        ([attempt(1, "InProgress", ended_at=None)], "is still InProgress"),
        (
            [attempt(1, "Failed"), attempt(2, created_at=30.0)],
            "while train-end-to-end-train-0123456789 was running",
        ),
        (
            [attempt(1, "Stopping", ended_at=None), attempt(2, created_at=61.0)],
            "while train-end-to-end-train-0123456789 was running",
        ),
    ],
    ids=["none", "paid twice", "never done", "left running", "at the same time", "too early"],
)
def test_what_is_wrong_is_told(jobs: list[ObservedAttempt], fault: str) -> None:
    assert any(fault in each for each in faults_of(jobs))
