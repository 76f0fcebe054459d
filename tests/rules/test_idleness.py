"""Idle accelerators are found while the training steps; no phase of a healthy training is idle."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from trainyard.rules.configuration import make_rule
from trainyard.rules.evaluation import ConfiguredRule, Evaluation
from trainyard.rules.records import (
    GpuSample,
    HostSample,
    MarkRecord,
    Record,
    Start,
    StepRecord,
    Validation,
)
from trainyard.rules.rule import RuleProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.rules.evaluation import Issue


def issues(records: Iterable[Record], **parameters: float) -> list[Issue]:
    rule = make_rule("IdleAccelerators", {"minutes": 10, **parameters}, profile=RuleProfile.ROBUST)
    configured = ConfiguredRule(name=rule.name, rule=rule, severity=rule.SEVERITY)
    return [issue for _, issue in Evaluation([configured]).feed(records)]


def sample(time: float, *percent: float | None, host: str = "algo-1") -> HostSample:
    gpus = tuple(GpuSample(utilization_percent=each) for each in percent)
    return HostSample(step=0, time=time, host=host, gpus=gpus)


def training(
    *percent: float | None,
    minutes: int = 30,
    step_s: float = 20.0,
    began: float = 0.0,
    first: int = 1,
    attempt: int = 1,
) -> Iterator[Record]:
    """Yield a start, and a step every `step_s` seconds with a sample of the GPUs each second."""
    yield Start(step=first - 1, time=began, world_size=1, attempt=attempt)
    time = began
    for step in count(first):
        for _ in range(int(step_s)):
            time += 1
            yield sample(time, *percent)
        yield StepRecord(step=step, time=time, step_seconds=step_s)
        if time - began >= 60 * minutes:
            return


def test_gpus_without_work_are_idle_once_the_minutes_are_over() -> None:
    found = issues(training(0.0, 3.0))

    assert [each.step for each in found] == [
        31
    ]  # the first step is start-up, 30 steps are 10 minutes
    assert found[0].text == (
        "no GPU was above 5 % for 10.0 minutes of 30 steps; stop_if_idle_minutes is 10"
    )
    assert found[0].numbers["idle_seconds"] == 600


@pytest.mark.parametrize(
    "percent",
    [(90.0,), (0.0, 0.0, 0.0, 60.0), (None,), ()],
    ids=["busy", "one-of-four-busy", "utilization-unknown", "no-gpus"],
)
def test_training_with_a_busy_gpu_or_without_known_ones_is_not_idle(
    percent: tuple[float | None, ...],
) -> None:
    assert issues(training(*percent)) == []


def test_gpus_of_another_host_count() -> None:
    records = list(training(0.0))
    busy = [sample(each.time or 0, 80.0, host="algo-2") for each in records[::400]]

    assert issues(sorted([*records, *busy], key=lambda each: each.time or 0)) == []


def test_busy_sample_starts_the_count_again() -> None:
    records = [*training(0.0, minutes=9), sample(541, 50.0)]
    rest = [
        each
        for each in training(0.0, minutes=9, began=541, first=28)
        if not isinstance(each, Start)
    ]

    assert issues([*records, *rest]) == []


def test_start_up_checkpoint_and_validation_are_not_idle() -> None:
    """Two minutes of steps each, and an hour without GPU work between them."""
    records: list[Record] = [Start(step=0, time=0.0, world_size=1)]
    records += [sample(float(each), 0.0) for each in range(3600)]
    time = 3600.0
    for step in range(1, 13):
        for _ in range(40):
            time += 1
            records.append(sample(time, 0.0))
        records.append(StepRecord(step=step, time=time, step_seconds=40.0))
        for _ in range(600):
            time += 1
            records.append(sample(time, 0.0))
        pause = (Validation if step % 2 else MarkRecord)(step=step, time=time)
        records.append(pause)

    assert issues(records) == []


def test_pause_is_not_idle_if_the_length_of_steps_is_unknown() -> None:
    records: list[Record] = [Start(step=0, time=0.0, world_size=1)]
    for step in range(1, 9):
        time = 300.0 * step
        records += [sample(time - 1, 0.0), MarkRecord(step=step, time=time - 1, kind="checkpoint")]
        records.append(StepRecord(step=step, time=time))

    assert issues(records) == []
    assert issues([each for each in records if not isinstance(each, MarkRecord)]) != []


def test_one_long_load_of_data_is_not_idle() -> None:
    records = [
        *training(70.0, minutes=5),
        sample(1500, 0.0),
        StepRecord(step=16, time=1500, step_seconds=1200),
    ]

    assert issues(records) == []


def test_new_start_begins_the_count_again() -> None:
    records = [*training(0.0, minutes=9), *training(0.0, minutes=9, began=600, first=28, attempt=2)]

    assert issues(records) == []
