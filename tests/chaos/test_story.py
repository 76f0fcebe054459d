"""A chaos run as it is told at its end."""

from __future__ import annotations

from chaos.fault_injector import Blow
from chaos.jobs import ObservedAttempt
from chaos.schedule import Strike, StrikeKind, StrikeMoment
from chaos.story import job_lines, story
from chaos.training_log import LogMark
from trainyard.task_ids import TaskId


def blow(
    number: int, kind: StrikeKind, *, at: float, task: str = TaskId.TRAIN, **members: object
) -> Blow:
    moment = StrikeMoment(task=task, step=int(at) if task == TaskId.TRAIN else None)
    strike = Strike(number=number, kind=kind, moment=moment)
    return Blow(strike=strike, at=at, step=int(at), **members)


def steps(first: int, last: int, *, at: float) -> list[LogMark]:
    """A step each second."""
    return [LogMark(at=at + step - first, step=step) for step in range(first, last + 1)]


def test_each_strike_is_told_with_what_it_cost() -> None:
    marks = [
        LogMark(at=0.0, step=0, is_start=True),
        *steps(1, 30, at=1.0),
        LogMark(at=40.0, step=20, is_start=True),
        *steps(21, 60, at=41.0),
    ]
    blows = [
        blow(1, StrikeKind.THROTTLING, at=10.0),
        blow(2, StrikeKind.INTERRUPTION, at=30.0),
        blow(3, StrikeKind.ENGINE, at=50.0, pid=7, back_at=53.0),
        blow(4, StrikeKind.SCHEDULER, at=60.0, pid=8),
        blow(5, StrikeKind.WORKER, at=70.0, task="report", pid=9),
        blow(6, StrikeKind.SLOW_UPLINK, at=5.0),
    ]

    lines = list(story(blows, marks, {"chaos-1": [10.0]}, began_at=-60.0, tries={"report": 2}))

    cost = "at step 30, resumed from step 20: 10 steps redone, 21 s lost"
    assert lines == [
        "  1:10  1. SageMaker throttles, at step 10: 1 request hit, no step lost",
        f"  1:30  2. spot interruption without notice, at step 30: {cost}",
        "  1:50  3. engine killed, at step 50: back after 3.0 s",
        "  2:00  4. scheduler killed, at step 60: it was not started again",
        "  2:10  5. worker killed, as report starts: report was tried 2 times",
        "  1:05  6. slow uplinks, at step 5: until the end of the run",
    ]


def test_each_attempt_is_told_with_what_was_paid() -> None:
    jobs = [
        ObservedAttempt(name="a", status="Failed", created_at=0.0, ended_at=9.0, billable_s=4),
        ObservedAttempt(
            name="b", status="Completed", created_at=9.0, ended_at=70.0, num_interruptions=1
        ),
        ObservedAttempt(name="c", status="InProgress", created_at=70.0, ended_at=None),
    ]
    assert list(job_lines(jobs)) == [
        "  a: Failed after 9.0 s, 4 s billed",
        "  b: Completed after 1 min 01 s, interrupted once",
        "  c: InProgress",
    ]
