"""A training cut into attempts, however often, has the issues of the one that nothing interrupted."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from tests.rules.health.curves import FAMILIES, draw_curve
from tests.rules.series import steps
from trainyard.rules.configuration import default_rules
from trainyard.rules.evaluation import Evaluation
from trainyard.rules.ranks import MOST_OPEN, ReplicaDivergence, Straggler
from trainyard.rules.records import (
    ACTIVATIONS,
    GRADIENTS,
    WEIGHTS,
    Checksums,
    Facts,
    Predictions,
    Record,
    Start,
    StepRecord,
    TensorStatistics,
    Validation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypothesis.strategies import DrawFn


# What goes by the clock: taken again it may be something else.
BY_TIME = {
    "ThroughputRegression",
    "DataStall",
    "StepOutlier",
    "MaxInitializationTime",
    "StalledTrainingRule",
    "Stalled",
}
RULES = [each for each in default_rules() if each.name not in BY_TIME]
NUM_STEPS = 400
Breaks = list[tuple[int, int]]


@st.composite
def breaks(draw: DrawFn, num_steps: int = NUM_STEPS) -> Breaks:
    """Draw up to five interruptions: the last step taken, and the step that the next attempt resumes at."""
    found: Breaks = []
    for _ in range(draw(st.integers(1, 5))):
        last = draw(st.integers(1, num_steps - 1))
        found.append((last, draw(st.integers(max(0, last - 60), last))))
    return found


def cut(whole: Sequence[Record], ends: Breaks) -> list[Record]:
    """Return the records of a training as several attempts wrote them; what they say is a function of the step."""
    found: list[Record] = []
    begin, ranks = 0, {each.rank for each in whole}
    for attempt, (last, then) in enumerate([*ends, (NUM_STEPS, 0)], 1):
        end = max(last, begin)
        starts = [each for each in whole if isinstance(each, Start) and each.rank in ranks]
        found += [replace(each, step=begin, attempt=attempt) for each in starts]
        found += [
            each for each in whole if not isinstance(each, Start) and begin < each.step <= end
        ]
        begin = min(then, end)
    return found


def issues(records: Iterable[Record], facts: Facts) -> list[tuple[str, int, int, str, str]]:
    """Return the issues of all rules, in an order of their own."""
    evaluation = Evaluation(RULES, facts)
    evaluation.feed(records)
    verdicts = evaluation.verdicts()
    assert [each.error for each in verdicts if each.error] == []
    return sorted(
        (each.name, issue.step, issue.onset, issue.key, str(issue.severity))
        for each in verdicts
        for issue in each.issues
    )


def spoil(record: Record, kind: int, begin: int) -> Record:
    """Return the record with a fault in it, from a step on; the same for a step that is taken again."""
    since = record.step - begin
    if since < 0:
        return record
    if isinstance(record, Validation) and kind == 5:
        return replace(record, loss=(record.loss or 1.0) * (1.2 + since / 100))
    if not isinstance(record, StepRecord) or record.loss is None:
        return record
    match kind:
        case 1:
            return replace(record, loss=9 * abs(record.loss) + since / 10)
        case 2:
            return replace(record, loss=math.nan)
        case 3:
            return replace(record, learning_rate=0.0, gradient_norm=1e6 if since < 3 else 1.0)
        case 4:
            return replace(record, loss=3 * record.loss)
        case _:
            return record


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 1000),
    every=st.sampled_from([1, 10]),
    kind=st.integers(0, 5),
    begin=st.integers(50, 300),
    ends=breaks(),
)
@settings(max_examples=10)
def test_cutting_a_curve_changes_no_issue(
    family: str, seed: int, every: int, kind: int, begin: int, ends: Breaks
) -> None:
    curve = draw_curve(family, seed, max_steps=NUM_STEPS)
    whole = [spoil(each, kind, begin) for each in curve.records(every=every)]

    assert issues(cut(whole, ends), curve.facts) == issues(whole, curve.facts)


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 1000),
    kind=st.integers(0, 5),
    begin=st.integers(50, 300),
    ends=breaks(),
)
@settings(max_examples=10)
def test_cutting_a_curve_into_jobs_changes_no_verdict(
    family: str, seed: int, kind: int, begin: int, ends: Breaks
) -> None:
    curve = draw_curve(family, seed, max_steps=NUM_STEPS)
    whole = [spoil(each, kind, begin) for each in curve.records(every=1)]

    assert worst_over_jobs(cut(whole, ends), curve.facts) == {
        (name, severity) for name, _, _, _, severity in issues(whole, curve.facts)
    }


def worst_over_jobs(records: Sequence[Record], facts: Facts) -> set[tuple[str, str]]:
    """Return the rules with issues and their severities, each attempt being a job that is watched by itself."""
    places = [at for at, each in enumerate(records) if isinstance(each, Start)]
    found: set[tuple[str, str]] = set()
    for begin, end in pairwise([*places, len(records)]):
        evaluation = Evaluation(RULES, facts)
        evaluation.feed(records[:begin])
        evaluation.begin_job()
        own = evaluation.feed(records[begin:end])
        found |= {(name, str(issue.severity)) for name, issue in own}
    return found


def tensors(fault: str, step: int, begin: int) -> StepRecord:
    """Return a step with tensors of which one has a fault from a step on."""
    is_bad = step >= begin
    gradient = {
        "vanishing": TensorStatistics(mean_abs=1e-12),
        "zero": TensorStatistics(mean_abs=0.0, zero_fraction=1.0),
        "nan": TensorStatistics(l2=math.nan, mean_abs=math.nan),
    }.get(fault if is_bad else "", TensorStatistics(l2=1.0, mean_abs=0.1, zero_fraction=0.0))
    update = (
        0.0 if is_bad and fault == "unchanged" else 0.5 if is_bad and fault == "large" else 1e-3
    )
    checksum = f"{step}" if not (is_bad and fault == "frozen") else "same"
    dead = 0.9 if is_bad and fault == "dead" else 0.1
    relu = TensorStatistics(inactive_fraction=dead, inactivity_percent=1.0, module_class="ReLU")
    return StepRecord(
        step=step,
        loss=2.0 - step / 1000,
        learning_rate=1e-3,
        tensors={
            GRADIENTS: {"a": gradient, "b": TensorStatistics(l2=1.0, mean_abs=0.1)},
            WEIGHTS: {
                "a": TensorStatistics(l2=1.0, update_l2=update),
                "b": TensorStatistics(checksum=checksum),
            },
            ACTIVATIONS: {"relu": relu},
        },
    )


def rich(fault: str, begin: int) -> list[Record]:
    """Return two ranks with tensors, checksums and predictions."""
    found: list[Record] = [Start(rank=rank, world_size=2) for rank in (0, 1)]
    for step in range(1, NUM_STEPS + 1):
        for rank in (0, 1):
            found.append(replace(tensors(fault, step, begin), rank=rank))
            if step % 20 == 0:
                bits = f"{rank if fault == 'bits' and step >= begin else 0}"
                found.append(Checksums(step=step, rank=rank, group_size=2, values={"a": bits}))
        if step % 10 == 0:
            found.append(Predictions(step=step, confusion=((99, 0), (97, 2))))
    return found


FAULTS = (
    "none",
    "vanishing",
    "zero",
    "nan",
    "unchanged",
    "large",
    "frozen",
    "dead",
    "bits",
)


@given(fault=st.sampled_from(FAULTS), begin=st.integers(60, 300), ends=breaks())
@settings(max_examples=6)
@pytest.mark.slow
def test_cutting_a_training_with_tensors_changes_no_issue(
    fault: str, begin: int, ends: Breaks
) -> None:
    whole = rich(fault, begin)
    facts = Facts(precision="bf16", max_steps=NUM_STEPS)

    assert issues(cut(whole, ends), facts) == issues(whole, facts)


@pytest.mark.parametrize("fault", FAULTS[1:])
def test_the_faults_of_the_law_above_are_found(fault: str) -> None:
    assert issues(rich(fault, 100), Facts(precision="bf16", max_steps=NUM_STEPS))


def test_five_cuts_within_the_patience_of_validations_hide_no_rise() -> None:
    losses = [Validation(step=10 * n, loss=2.0 if n < 10 else 3.0) for n in range(1, 41)]
    whole: list[Record] = [Start(), *losses, *steps(NUM_STEPS, loss=1.0)]
    whole[1:] = sorted(whole[1:], key=lambda each: each.step)
    ends = [(step, step - 5) for step in (105, 115, 125, 135, 145)]

    found = {each[0]: each[1] for each in issues(cut(whole, ends), Facts())}

    assert found["ValRise"] == 120
    assert found["Overfit"] == 120


@pytest.mark.parametrize("rule", [Straggler(), ReplicaDivergence()], ids=lambda rule: rule.name)
def test_what_waits_for_a_rank_that_is_gone_is_bounded(rule: Straggler | ReplicaDivergence) -> None:
    state = rule.watch(Facts())
    list(state.see(Start(world_size=2)) if isinstance(rule, Straggler) else ())
    for step in range(1, 3 * MOST_OPEN):
        record = StepRecord(step=step, local_seconds=0.1)
        checked = Checksums(step=step, group_size=2, values={"w": "0"})
        list(state.see(record if isinstance(rule, Straggler) else checked))

    assert len(state._open) == MOST_OPEN
