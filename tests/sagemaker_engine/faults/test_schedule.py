from __future__ import annotations

import math
import statistics

import pytest

from sagemaker_engine.faults.model import FaultError, Moment
from sagemaker_engine.faults.schedule import Schedule, exponential, seconds_until_interruption


def test_half_of_the_attempts_outlive_the_median() -> None:
    assert exponential(0.5, mean=3600 / 30) == pytest.approx(83.18, abs=0.005)


def test_draws_have_the_mean_that_was_asked_for() -> None:
    drawn = [
        seconds_until_interruption(seed=1, job=f"job-{n}", attempt=1, per_hour=30)
        for n in range(4000)
    ]

    assert statistics.fmean(drawn) == pytest.approx(120, rel=4 / math.sqrt(4000))


def test_same_seed_draws_the_same_moments_and_each_attempt_its_own() -> None:
    first, again = (Schedule(seed=7, interruptions_per_hour=30) for _ in range(2))
    other = Schedule(seed=8, interruptions_per_hour=30)

    moments = [each.interruption("job", attempt) for each in (first, other) for attempt in (1, 2)]

    assert moments[:2] == [again.interruption("job", attempt) for attempt in (1, 2)]
    assert len({each.at for each in moments if each is not None}) == 4


def test_moment_of_a_seed_stays_what_it_is() -> None:
    drawn = Schedule(seed=7, interruptions_per_hour=30, notice_s=5).interruption("j", 1)

    assert drawn is not None
    assert (drawn.at, drawn.notice_s) == (Moment(seconds=85.364), 5)


def test_attempts_beyond_the_most_interruptions_are_spared() -> None:
    schedule = Schedule(seed=7, interruptions_per_hour=30, max_interruptions=1)

    assert schedule.interruption("job", 1) is not None
    assert schedule.interruption("job", 2) is None


@pytest.mark.parametrize("values", [{"notice_s": -1}, {"max_interruptions": -1}])
def test_schedule_refuses_what_cannot_be(values: dict[str, int]) -> None:
    with pytest.raises(FaultError):
        Schedule(seed=1, interruptions_per_hour=1, **values)  # type: ignore[arg-type]  # either
