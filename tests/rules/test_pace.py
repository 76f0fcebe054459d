"""Each rule on time, and on ranks, fires at its step, spares a healthy neighbor, and does not guess."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, merged, noisy, steps
from trainyard.rules.records import Checksums, MarkRecord, Record, Start, StepRecord
from trainyard.rules.rule import RuleProfile

RULES_PAGE = Path(__file__).parents[2] / "docs/rules.md"
NONE = steps(100, loss=1.0)
BEGIN = Start(time=1000.0, world_size=2)


def timed(times: dict[int, float], *, kind: str | None = None) -> list[Record]:
    """Return step lines at these times, or marks of a kind."""
    if kind is not None:
        return [MarkRecord(step=step, time=time, kind=kind) for step, time in times.items()]
    return [StepRecord(step=step, time=time, loss=1.0) for step, time in times.items()]


def two_ranks(count: int, local_seconds: dict[int, object], **fields: float) -> list[Record]:
    """Return the steps of two ranks with what each needs before the first collective."""
    own = [
        steps(count, rank=rank, local_seconds=local, **fields)  # type: ignore[arg-type]  # number or function
        for rank, local in local_seconds.items()
    ]
    return [BEGIN, *merged(*own)]


def checksums(count: int, wrong: dict[int, int]) -> list[Record]:
    """Return checksums of three replicas; `wrong` says from which step on a rank's differs."""
    return [
        Checksums(
            step=step,
            rank=rank,
            group_size=3,
            values={"a": "1", "b": "bad" if step >= wrong.get(rank, 99) else "2"},
        )
        for step in range(1, count + 1)
        for rank in range(3)
    ]


EACH_SECOND = timed({n: 1000.0 + n for n in range(1, 30)})
CASES = [
    JudgedCase(
        rule="ThroughputRegression",
        faulty=steps(300, units_per_second=jump(1000.0, 650.0, at=100)),
        healthy=steps(300, units_per_second=noisy(1000.0, 0.1)),
        without=NONE,
        fires=202, onset=100, says="65% of the best", needs="tokens or samples per second",
    ),
    JudgedCase(
        rule="DataStall",
        faulty=steps(120, step_seconds=1.0, data_wait_seconds=jump(0.05, 0.5, at=60)),
        healthy=steps(120, step_seconds=1.0, data_wait_seconds=lambda step: 0.9 if step % 3 == 0 else 0.1),
        without=steps(50, step_seconds=1.0),
        fires=87, onset=60, says="50% of a step is waiting for data", needs="data_wait_seconds and step_seconds",
    ),
    JudgedCase(
        name="StepOutlier: robust",
        rule="StepOutlier",
        faulty=steps(300, step_seconds=lambda step: 3.0 if step % 10 == 0 else 1.0),
        healthy=steps(300, step_seconds=lambda step: 1.9 if step % 10 == 0 else 1.0),
        without=NONE,
        fires=110, onset=10, says="11 steps were outliers, the last took 3 s", needs="step_seconds",
    ),
    JudgedCase(
        name="StepOutlier: documented",
        rule="StepOutlier",
        profile=RuleProfile.DOCUMENTED,
        parameters={"stddev": "3", "n_outliers": "0"},
        faulty=steps(200, step_seconds=lambda step: 2.0 if step == 160 else 1.0 + step % 2 / 10),
        healthy=steps(200, step_seconds=lambda step: 1.15 if step == 160 else 1.0 + step % 2 / 10),
        without=steps(100, step_seconds=1.0),
        fires=160, onset=160, says="1 steps were outliers", needs="100 steps; needs more than 100",
    ),
    JudgedCase(
        rule="MaxInitializationTime",
        faulty=[BEGIN, *timed({1: 2260.0, 2: 2261.0})],
        healthy=[BEGIN, *timed({1: 2140.0, 2: 9000.0})],
        without=timed({1: 9000.0}),
        fires=1, onset=0, says="21.0 minutes until the first step", needs="the times of starts",
    ),
    JudgedCase(
        name="MaxInitializationTime: still waiting",
        rule="MaxInitializationTime",
        faulty=[BEGIN, MarkRecord(time=2260.0, kind="clock")],
        healthy=[BEGIN, MarkRecord(time=2140.0, kind="clock")],
        without=[MarkRecord(time=9000.0, kind="clock")],
        fires=0, onset=0, says="21.0 minutes without a step", needs="the times of starts",
    ),
    JudgedCase(
        rule="StalledTrainingRule",
        faulty=[BEGIN, *timed({1: 1010.0, 2: 1020.0}), *timed({2: 2000.0}, kind="alive"), *timed({3: 2821.0})],
        healthy=[BEGIN, *timed({1: 1010.0, 2: 1020.0}), *timed({3: 2819.0})],
        without=[StepRecord(step=1, loss=1.0)],
        fires=2, onset=2, says="no step for 1801 s (allowed: 1800 s)", needs="the times of steps",
        severity="error",
    ),
    JudgedCase(
        name="Stalled: between two lines",
        rule="Stalled",
        faulty=[BEGIN, *EACH_SECOND, *timed({30: 1090.0})],
        healthy=[BEGIN, *EACH_SECOND, *timed({29: 1050.0}, kind="alive"), *timed({30: 1109.0})],
        without=[StepRecord(step=1, loss=1.0)],
        fires=29, onset=29, says="no sign of life for 61 s (allowed: 60 s)", needs="the times of steps",
        severity="error",
    ),
    JudgedCase(
        name="Stalled: slow steps may take longer",
        rule="Stalled",
        faulty=[BEGIN, *timed({n: 1000.0 + 20 * n for n in range(1, 10)}), *timed({10: 1181.0 + 200})],
        healthy=[BEGIN, *timed({n: 1000.0 + 20 * n for n in range(1, 10)}), *timed({10: 1180.0 + 199})],
        without=[],
        fires=9, onset=9, says="allowed: 200 s", needs="the times of steps",
        severity="error",
    ),
    JudgedCase(
        name="Stalled: the end of the instances",
        rule="Stalled",
        faulty=[BEGIN, *timed({1: 1010.0, 2: 1020.0}), MarkRecord(step=2, time=1121.0, kind="ended")],
        healthy=[
            BEGIN, *timed({1: 1010.0, 2: 1020.0}),
            *timed({2: 1021.0}, kind="done"), MarkRecord(step=2, time=9000.0, kind="ended"),
        ],
        without=[],
        fires=2, onset=2, says="no sign of life for 101 s", needs="the times of steps",
        severity="error",
    ),
    JudgedCase(
        rule="Straggler",
        faulty=two_ranks(100, {0: 0.01, 1: jump(0.01, 0.04, at=21)}, step_seconds=0.2),
        healthy=two_ranks(100, {0: 0.01, 1: jump(0.01, 0.019, at=21)}, step_seconds=0.2),
        without=[BEGIN, *steps(50, local_seconds=0.01)],
        fires=80, onset=40, says="40 ms before the first collective, the fastest rank 10 ms",
        needs="no step yet of all 2 ranks",
    ),
    JudgedCase(
        rule="ReplicaDivergence",
        faulty=checksums(10, {1: 7}),
        healthy=checksums(10, {}),
        without=[Checksums(step=1, group_size=3, values={"a": "1"})],
        fires=7, onset=7, says="2 different checksums on 3 ranks; suspected: rank 1", needs="checksums of 1 of 3 ranks",
        severity="error",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_documented_steps_to_an_issue_are_those_of_the_rules() -> None:
    taken = {case.rule: case.fires - case.onset for case in CASES}
    found = re.search(
        r"ThroughputRegression; DataStall \| (\d+); (\d+) \|",
        RULES_PAGE.read_text(encoding="utf-8"),
    )
    assert found is not None
    assert [*map(int, found.groups())] == [taken["ThroughputRegression"], taken["DataStall"]]


def test_a_long_run_may_have_a_few_long_steps() -> None:
    rare = steps(3000, step_seconds=lambda step: 3.0 if step % 150 == 0 else 1.0)

    often = {"share": 0.0, "cost_share": 0.0}

    assert judged("StepOutlier", rare).issues == ()
    assert [each.step for each in judged("StepOutlier", rare, often).issues] == [1650]


def test_long_steps_that_cost_next_to_nothing_are_no_outliers() -> None:
    uneven = steps(300, step_seconds=lambda step: 2.4 if step % 10 == 0 else 1.0)

    assert judged("StepOutlier", uneven).issues == ()
    assert judged("StepOutlier", uneven, {"cost_share": 0.0}).status == "IssuesFound"


def test_throughput_that_recovers_is_no_regression() -> None:
    dip = steps(400, units_per_second=lambda step: 500.0 if 150 <= step < 200 else 1000.0)
    longer = steps(400, units_per_second=lambda step: 500.0 if 150 <= step < 270 else 1000.0)

    assert judged("ThroughputRegression", dip).issues == ()
    assert judged("ThroughputRegression", longer).status == "IssuesFound"


def test_the_straggler_is_named() -> None:
    slow = two_ranks(60, {0: 0.04, 1: 0.01}, step_seconds=0.2)

    assert [(issue.step, issue.rank) for issue in judged("Straggler", slow).issues] == [(60, 0)]


def test_of_two_replicas_that_differ_both_are_suspected() -> None:
    two = [Checksums(step=5, rank=rank, group_size=2, values={"w": str(rank)}) for rank in (0, 1)]

    issue = judged("ReplicaDivergence", two).issues[0]

    assert (issue.key, issue.step) == ("w", 5)
    assert "suspected: rank 0, 1" in issue.text


def test_a_restart_is_no_stall_and_begins_throughput_anew_with_other_ranks() -> None:
    first = steps(100, units_per_second=1000.0)
    second = [Start(step=100, time=99_999.0, attempt=2, world_size=1)]
    second += [
        StepRecord(step=step, time=99_999.0 + step, units_per_second=500.0)
        for step in range(101, 300)
    ]

    assert judged("ThroughputRegression", [BEGIN, *first, *second]).issues == ()
    assert judged("Stalled", [BEGIN, *first, *second]).issues == ()
    same = [Start(step=100, time=99_999.0, attempt=2, world_size=2), *second[1:]]
    assert judged("ThroughputRegression", [BEGIN, *first, *same]).status == "IssuesFound"


def test_shares_of_the_step_are_reported_and_never_an_issue() -> None:
    run = steps(
        10, step_seconds=2.0, data_wait_seconds=0.2, forward_seconds=0.6, backward_seconds=1.0
    )

    verdict = judged("OverallFrameworkMetrics", run)

    assert verdict.status == "NoIssuesFound"
    assert verdict.summary == pytest.approx(
        {"data_wait %": 10, "forward %": 30, "backward %": 50, "optimizer %": 0}
    )
    assert judged("OverallFrameworkMetrics", NONE).not_evaluated is not None


def test_a_step_of_milliseconds_that_another_process_interrupted_is_no_outlier() -> None:
    short = steps(300, step_seconds=lambda step: 0.009 if step % 10 == 0 else 0.002)
    longer = steps(300, step_seconds=lambda step: 0.03 if step % 10 == 0 else 0.002)

    assert judged("StepOutlier", short).issues == ()
    assert judged("StepOutlier", short, {"min_excess_seconds": 0.0}).status == "IssuesFound"
    assert judged("StepOutlier", longer).status == "IssuesFound"
