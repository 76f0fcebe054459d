"""What a seed's schedule promises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, strategies

from chaos.schedule import (
    ATTEMPT_ENDS,
    INTERRUPTIONS,
    TASKS,
    Strike,
    StrikeKind,
    StrikeMoment,
    draw,
)
from trainyard.task_ids import TaskId

MAX_STEPS = 600
seeds = strategies.integers(min_value=0, max_value=2**63 - 1)


@given(seed=seeds)
def test_the_same_seed_draws_the_same_strikes(seed: int) -> None:
    assert draw(seed, max_steps=MAX_STEPS) == draw(seed, max_steps=MAX_STEPS)


def test_a_seed_is_for_ever() -> None:
    """A change of the drawing makes every seed that somebody noted mean something else."""
    assert [str(strike) for strike in draw(7, max_steps=MAX_STEPS)] == [
        "1. S3 answers 500, as shard starts",
        "2. slow uplinks (1.2 MB/s a host), at step 15",
        "3. spot interruption with notice, at step 54",
        "4. SageMaker throttles (ListTrainingJobs), at step 212",
        "5. api-server killed, at step 308",
        "6. triggerer killed, at step 409",
        "7. spot interruption with notice, at step 456",
    ]


@given(seed=seeds, max_steps=strategies.integers(min_value=50, max_value=100_000))
@example(seed=7916773, max_steps=50)  # more strikes at the start of a task than tasks
def test_strikes_come_in_order_inside_the_training_and_apart(seed: int, max_steps: int) -> None:
    strikes = draw(seed, max_steps=max_steps)
    assert [strike.number for strike in strikes] == list(range(1, len(strikes) + 1))
    positions = [strike.moment.position for strike in strikes]
    assert positions == sorted(positions)
    steps = [strike.moment.step for strike in strikes if strike.moment.step is not None]
    assert all(0 < step < max_steps for step in steps)


@given(seed=seeds)
def test_a_run_can_survive_what_is_drawn(seed: int) -> None:
    """A task has few retries: one strike at most for each but the training, one ended attempt for that."""
    strikes = draw(seed, max_steps=MAX_STEPS)
    assert 6 <= len(strikes) <= 8
    assert any(strike.kind in INTERRUPTIONS for strike in strikes)
    assert sum(strike.kind in ATTEMPT_ENDS for strike in strikes) <= 1
    at_starts = Counter(strike.moment.task for strike in strikes if strike.moment.step is None)
    assert max(at_starts.values(), default=0) <= 1


@given(seed=seeds, max_steps=strategies.integers(min_value=50, max_value=100_000))
def test_uplinks_are_slow_before_anything_else_strikes_the_training(
    seed: int, max_steps: int
) -> None:
    strikes = draw(seed, max_steps=max_steps)
    first = next(strike for strike in strikes if strike.moment.step is not None)
    assert [each for each in strikes if each.kind is StrikeKind.SLOW_UPLINK] == [first]
    assert 0 < (first.megabytes_per_s or 0) < 2


def test_fifty_seeds_hold_every_kind_and_every_task() -> None:
    strikes = [strike for seed in range(50) for strike in draw(seed, max_steps=MAX_STEPS)]
    assert {strike.kind for strike in strikes} == set(StrikeKind)
    assert {strike.moment.task for strike in strikes} == set(TASKS)
    assert {strike.host for strike in strikes} == {None, "algo-1", "algo-2"}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (StrikeMoment(task=TaskId.TRAIN, step=143), "at step 143"),
        (StrikeMoment(task="shard"), "as shard starts"),
    ],
    ids=["step", "task"],
)
def test_a_strike_says_what_and_when(moment: StrikeMoment, text: str) -> None:
    strike = Strike(number=2, kind=StrikeKind.KILLED_RANK, moment=moment, host="algo-2")
    assert str(strike) == f"2. a rank killed (algo-2), {text}"
