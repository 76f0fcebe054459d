"""Records fed as they come give what the whole run gives, however ranks interleave; restarts change no verdict."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from tests.rules.healthy_run import HealthyRun
from tests.rules.series import steps
from tests.runs.interrupted_run import Break, InterruptedRun
from trainyard.rules.configuration import configured_rules, default_rules
from trainyard.rules.evaluation import Evaluation, evaluate
from trainyard.rules.records import GRADIENTS, Facts, MarkRecord, Start, StepRecord
from trainyard.rules.series import MOST_OBSERVATIONS, History, Smoothed
from trainyard.rules.training_log import TrainingLogReader, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.rules.evaluation import Verdict
    from trainyard.rules.records import Record

# What goes by the clock, or by the speed of an attempt: taken again it may be something else.
BY_TIME = {
    "ThroughputRegression",
    "StepOutlier",
    "MaxInitializationTime",
    "StalledTrainingRule",
    "Stalled",
}
LOSS_RULES = (
    "NonFinite",
    "LossSpike",
    "LossNotDecreasing",
    "NotLearning",
    "Plateau",
    "LRSanity",
    "GradNormSpike",
)


def spoiled(records: Iterable[Record], seed: int) -> list[Record]:
    """Return the records with faults in them, the same ones for a step that is taken again."""
    begin = random.Random(seed).randint(20, 40)  # noqa: S311  # a series, not a secret
    kind = seed % 5
    return [_spoiled(each, kind) if each.step >= begin else each for each in records]


def _spoiled(record: Record, kind: int) -> Record:
    if not isinstance(record, StepRecord) or record.loss is None:
        return record
    match kind:
        case 0:
            return replace(record, loss=9 * record.loss)
        case 1:
            return replace(record, loss=float("nan"), gradient_norm=float("nan"))
        case 2:
            return replace(record, learning_rate=0.0, gradient_norm=1e6)
        case 3:
            local = (record.local_seconds or 0.0) * (1 + 4 * record.rank)
            return replace(record, local_seconds=local, units_per_second=1.0)
        case _:
            return replace(record, tensors={**record.tensors, GRADIENTS: {}})


def interleaved(records: list[Record], seed: int) -> list[Record]:
    """Return the records with those of each rank in order, ranks and attempts mixed within an attempt only."""
    draw = random.Random(seed)  # noqa: S311
    found: list[Record] = []
    attempt: list[list[Record]] = [[], []]
    for record in [*records, Start(attempt=99)]:
        if isinstance(record, Start) and record.rank == 0:
            while any(attempt):
                found.append(draw.choice([each for each in attempt if each]).pop(0))
        attempt[record.rank].append(record)
    return found


@given(seed=st.integers(0, 10_000))
@settings(max_examples=8)
def test_feeding_piece_by_piece_is_feeding_at_once(seed: int) -> None:
    run = HealthyRun(seed=seed, num_ranks=2, max_observations=35)
    records = spoiled(run.records(), seed)
    rules = default_rules()
    whole = evaluate(rules, records, run.facts)

    piecewise, told = Evaluation(rules, run.facts), []
    for record in records:
        told += piecewise.feed([record])
    mixed = evaluate(rules, interleaved(records, seed), run.facts)

    assert piecewise.verdicts() == whole
    assert sorted((name, issue.step) for name, issue in told) == sorted(
        (verdict.name, issue.step) for verdict in whole for issue in verdict.issues
    )
    assert [without_summary(each) for each in mixed] == [without_summary(each) for each in whole]


def without_summary(verdict: Verdict) -> Verdict:
    """Return the verdict without the reasons and sums that depend on which rank came first."""
    return replace(verdict, summary={}, not_evaluated=verdict.not_evaluated and "")


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_an_interruption_changes_no_verdict_on_what_was_learned(seed: int) -> None:
    unbroken = HealthyRun(seed=seed, num_breaks=0)
    broken = HealthyRun(seed=seed, num_breaks=0)
    last = max(2, broken.max_steps // 2)
    broken.breaks = [(last, last - last % broken.checkpoint_interval)]
    rules = configured_rules(LOSS_RULES)

    one = evaluate(rules, spoiled(unbroken.records(), seed), unbroken.facts)
    two = evaluate(rules, spoiled(broken.records(), seed), broken.facts)

    for first, second in zip(one, two, strict=True):
        assert (first.status, first.worst) == (second.status, second.worst)
        late = rules[[each.name for each in rules].index(first.name)].rule
        allowance = 5 * broken.log_interval + getattr(late, "num_steps", 0)
        for before, after in zip(first.issues[:1], second.issues[:1], strict=True):
            assert before.step <= after.step <= before.step + allowance


def test_lines_as_they_come_are_the_lines_of_the_log() -> None:
    run = InterruptedRun(
        num_steps=120, logs_checkpoints=True, breaks=(Break(after_steps=41), Break(after_steps=30))
    )
    rows = [
        {"time_ms": e.time_ms, "job": e.job, "stream": e.stream, "line": e.text} for e in run.lines
    ]
    rules = default_rules()

    live, reader = Evaluation(rules), TrainingLogReader()
    for row in rows:
        record = reader.read(str(row["line"]), time=int(str(row["time_ms"])) / 1000)
        live.feed([record] if record else [])

    assert live.verdicts() == evaluate(rules, read_rows(rows))


def test_while_a_run_goes_on_what_found_nothing_is_in_progress() -> None:
    facts = Facts(precision="bf16", skipped_steps=0)
    live = Evaluation(configured_rules(["NonFinite", "LossSpike"]), facts)

    told = live.feed(steps(60, loss=lambda step: float("inf") if step == 55 else 2.0))

    assert [(name, issue.step) for name, issue in told] == [("NonFinite", 55)]
    assert [each.status for each in live.verdicts(is_final=False)] == ["IssuesFound", "InProgress"]
    assert [each.status for each in live.verdicts()] == ["IssuesFound", "NoIssuesFound"]


def test_the_clock_tells_a_silence_while_it_lasts() -> None:
    live = Evaluation(configured_rules(["Stalled"]))
    live.feed([Start(time=1000.0), *steps(30, loss=1.0)])

    assert live.feed([MarkRecord(step=30, time=1080.0, kind="clock")]) == []
    told = live.feed([MarkRecord(step=30, time=1091.0, kind="clock")])
    assert [(name, issue.step) for name, issue in told] == [("Stalled", 30)]
    assert live.feed([MarkRecord(step=30, time=1200.0, kind="clock")]) == []  # said once


SHARED_VALUES = ("LossSpike", "LossNotDecreasing", "NotLearning", "Plateau", "LRSanity", "GradNormSpike",
                 "ThroughputRegression", "Overfit", "Overtraining")  # fmt: skip


def of_ranks(num_ranks: int, count: int, **fields: float) -> list[Record]:
    """Return the same steps of all ranks, half a second apart."""
    begin: list[Record] = [Start(rank=rank, world_size=num_ranks) for rank in range(num_ranks)]
    return begin + [
        StepRecord(step=step, rank=rank, time=1000.0 + step / 2, **fields)
        for step in range(1, count + 1)
        for rank in range(num_ranks)
    ]


def num_stored(evaluation: Evaluation) -> int:
    """Return the number of observations in all series of an evaluation."""
    states = [state for run in evaluation._runs for state in run._watches.values()]
    series = [each for state in states for each in vars(state).values()]
    own = [each.history if isinstance(each, Smoothed) else each for each in series]
    return sum(len(each) for each in own if isinstance(each, History))


def test_values_that_ranks_share_are_stored_once() -> None:
    shared = {"loss": 1.0, "learning_rate": 1e-3, "gradient_norm": 1.0, "units_per_second": 9.0}
    rules = configured_rules(
        [*SHARED_VALUES, {"name": "own", "expression": "loss > 9 * median(loss, 100)"}]
    )
    stored, issues = [], []
    for num_ranks in (1, 64):
        evaluation = Evaluation(rules)
        evaluation.feed(of_ranks(num_ranks, 1_000, **shared))
        stored.append(num_stored(evaluation))
        issues.append([(each.name, each.num_issues) for each in evaluation.verdicts()])

    assert stored[0] == stored[1] > 1_000
    assert issues[0] == issues[1]


def test_times_of_each_rank_are_stored_up_to_a_limit() -> None:
    rules = configured_rules(["DataStall", "StepOutlier"])
    evaluation = Evaluation(rules)
    evaluation.feed(of_ranks(2, 20_000, step_seconds=0.5, data_wait_seconds=0.1))

    assert num_stored(evaluation) <= 2 * 4 * MOST_OBSERVATIONS
    assert [each.num_judged for each in evaluation.verdicts()] == [2 * 19_993, 2 * 19_991]


@pytest.mark.parametrize("missing", ["none", "rank 0 from the start", "rank 0 from step 100"])
def test_issue_is_found_once_whichever_ranks_write(missing: str) -> None:
    gone_at = {"none": 10_000, "rank 0 from the start": 0, "rank 0 from step 100": 100}[missing]

    def is_written(record: Record) -> bool:
        return record.rank > 0 or record.step < gone_at

    records = [
        replace(each, loss=9.0)
        if isinstance(each, StepRecord) and 2_000 < each.step <= 2_010
        else each
        for each in of_ranks(4, 2_500, loss=1.0)
    ]
    evaluation = Evaluation(configured_rules(["LossSpike"]))

    found = evaluation.feed(filter(is_written, records))

    assert [issue.step for _, issue in found] == [2_003]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("then", [0, 1])
@pytest.mark.parametrize("bad", [70, 100])
def test_ranks_whose_objects_arrive_late_change_no_issue(first: int, then: int, bad: int) -> None:
    """In each attempt, all records of one rank come before those of the other; steps 61 to 80 are taken twice."""
    records: list[Record] = []
    for attempt, begin, ahead in ((1, 0, first), (2, 60, then)):
        for rank in (ahead, 1 - ahead):
            records.append(Start(attempt=attempt, step=begin, rank=rank, world_size=2))
            records += [
                StepRecord(step=step, rank=rank, loss=9.0 if attempt == 2 and step >= bad else 1.0)
                for step in range(begin + 1, begin + 81)
            ]
    evaluation = Evaluation(configured_rules(["LossSpike"]))

    found = evaluation.feed(records)

    assert [issue.step for _, issue in found] == [bad + 2]
    assert evaluation.verdicts()[0].num_judged == 2 * (80 - 50 + 80)


@pytest.mark.parametrize("kind", range(5))
def test_faults_of_the_property_above_are_found(kind: int) -> None:
    runs = (HealthyRun(seed=seed, num_ranks=2, num_breaks=0) for seed in range(100))
    run = next(each for each in runs if each.log_interval == 1 and each.max_steps > 110)
    found = {
        each.name
        for each in evaluate(default_rules(), spoiled(run.records(), 5 * 9 + kind), run.facts)
        if each.issues
    }

    # Before step 40 no throughput has been held for long enough to have fallen.
    expected = [
        {"LossSpike"},
        {"NonFinite"},
        {"LRSanity", "GradNormSpike"},
        {"Straggler"},
        set(),
    ]
    assert expected[kind] <= found
