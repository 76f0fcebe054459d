"""The interval between checkpoints: its formulas, its bounds, and when one is due."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from trainer.checkpoint_pace import (
    FIRST_AFTER_STEPS,
    ChosenPace,
    choose_interval,
    daly_interval_s,
    make_pace,
)

MINUTE_S, HOUR_S = 60.0, 3600.0
costs = st.floats(1e-4, 100)
means = st.floats(60, 1e6)


@pytest.mark.parametrize(
    ("mean_h", "minutes"), [(24, "117"), (6, "57"), (0.25, "9.1")], ids=["fig-3", "fig-4", "fig-5"]
)
def test_daly_gives_the_numbers_of_his_figures(mean_h, minutes):
    interval_s = daly_interval_s(cost_s=5 * MINUTE_S, mean_time_to_interruption_s=mean_h * HOUR_S)

    decimals = len(minutes.partition(".")[2])
    assert f"{interval_s / MINUTE_S:.{decimals}f}" == minutes


def test_worked_numbers_of_the_docstrings():
    choice = choose_interval(cost_s=0.1, step_s=0.2, mean_time_to_interruption_s=HOUR_S)

    assert choice.steps == 134
    assert "Daly's optimum: 26.8 s at 0.2 s per step" in choice.reason


@given(mean_s=means, part=st.floats(1e-6, 0.5))
def test_no_other_interval_takes_less_wall_time_by_dalys_model(mean_s, part):
    """Wall time a second of work: (exp((T + C) / M) - 1) M / T, interruptions being Poisson."""
    cost_s = part * mean_s
    best_s = daly_interval_s(cost_s=cost_s, mean_time_to_interruption_s=mean_s)

    def wall_s(interval_s):
        return math.expm1((interval_s + cost_s) / mean_s) * mean_s / interval_s

    assert wall_s(best_s) < min(wall_s(0.8 * best_s), wall_s(1.25 * best_s))


def test_interval_is_mean_time_where_a_checkpoint_takes_twice_as_long():
    assert daly_interval_s(cost_s=200, mean_time_to_interruption_s=100) == 100


@given(cost_s=costs, step_s=st.floats(0.001, 100), mean_s=means)
def test_chosen_interval_is_cheap_or_at_most_twice_the_best(cost_s, step_s, mean_s):
    best_s = daly_interval_s(cost_s=cost_s, mean_time_to_interruption_s=mean_s)

    steps = choose_interval(cost_s=cost_s, step_s=step_s, mean_time_to_interruption_s=mean_s).steps

    seconds, rounding = steps * step_s, 1.0001
    assert seconds >= best_s / rounding
    assert cost_s / seconds <= 0.01 * rounding or seconds >= 2 * best_s / rounding
    assert seconds - step_s <= max(best_s, min(100 * cost_s, 2 * best_s)) * rounding


@given(step_s=st.floats(0.01, 10), mean_s=means)
def test_dearer_checkpoints_come_less_often(step_s, mean_s):
    steps = [
        choose_interval(cost_s=cost, step_s=step_s, mean_time_to_interruption_s=mean_s).steps
        for cost in (0.01, 0.1, 1.0, 10.0)
    ]

    assert steps == sorted(steps)


def due_steps(pace, steps, *, now, is_writing=lambda _: False):
    found = []
    for step in steps:
        now[0] += 0.2
        if pace.is_due(step, is_writing=is_writing(step)):
            found.append(step)
    return found


def test_fixed_pace_keeps_to_multiples_even_while_one_is_written():
    assert [s for s in range(1, 13) if make_pace(4, 60).is_due(s, is_writing=True)] == [4, 8, 12]


def test_no_checkpoint_is_due_before_the_end_with_minus_1():
    assert not any(make_pace(-1, 60).is_due(step, is_writing=False) for step in range(1, 1000))


def test_chosen_pace_measures_early_and_then_follows_the_cost():
    now = [0.0]
    pace = ChosenPace(mean_time_to_interruption_s=HOUR_S, clock=lambda: now[0])

    assert due_steps(pace, range(101, 112), now=now) == [100 + FIRST_AFTER_STEPS]
    choice = pace.note_cost(0.1)
    assert choice.steps == 134
    assert due_steps(pace, range(112, 400), now=now) == [110 + 134, 110 + 2 * 134]


def test_chosen_pace_waits_for_the_one_before_instead_of_stalling():
    now = [0.0]
    pace = ChosenPace(mean_time_to_interruption_s=HOUR_S, clock=lambda: now[0])

    due = due_steps(pace, range(1, 20), now=now, is_writing=lambda step: step < 15)

    assert due == [15]


def test_chosen_pace_believes_the_dearest_of_the_last_three():
    now = [0.0]
    pace = ChosenPace(mean_time_to_interruption_s=HOUR_S, clock=lambda: now[0])
    due_steps(pace, range(1, 12), now=now)

    steps = [pace.note_cost(cost).steps for cost in (0.1, 0.01, 0.01, 0.01)]

    assert steps[0] == steps[1] == steps[2] > steps[3]


def test_a_run_that_is_interrupted_more_often_than_expected_saves_more_often():
    def chosen(**past):
        now = [0.0]
        pace = ChosenPace(mean_time_to_interruption_s=HOUR_S, clock=lambda: now[0])
        pace.note_past(**past)
        for step in range(1, 12):
            now[0] += 0.1
            pace.is_due(step, is_writing=False)
        return pace.note_cost(0.05).steps

    never = chosen(interruptions=0, trained_s=0.0)
    rarely = chosen(interruptions=1, trained_s=2 * HOUR_S)
    often = chosen(interruptions=3, trained_s=119.0)  # and 1 s of this start: one each 40 s
    once = chosen(interruptions=1, trained_s=60.0)  # may be chance
    unknown = chosen(interruptions=5, trained_s=0.0)  # of a checkpoint of an earlier version
    assert never == rarely == once == unknown
    assert often == choose_interval(cost_s=0.05, step_s=0.1, mean_time_to_interruption_s=40).steps
    assert often < never / 4
