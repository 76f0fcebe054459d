from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.tuning.early_stopping import Hyperband, is_below_median

FINISHED = [(1.0, 1.0), (2.0, 4.0), (3.0, 5.0)]


@pytest.mark.parametrize(
    ("curve", "stops"),
    [((9.0, 3.5), True), ((0.0, 3.0), False), ((9.0, 2.5), False), ((2.5,), True), ((), False)],
)
def test_median_rule_of_the_documented_example(curve: tuple[float, ...], stops: bool) -> None:
    assert is_below_median(curve, FINISHED, maximize=False) is stops


def test_median_rule_turns_round_for_maximize() -> None:
    assert is_below_median((9.0, 2.5), FINISHED, maximize=True)
    assert not is_below_median((0.0, 3.5), FINISHED, maximize=True)


def test_median_rule_waits_for_three_finished_trials_of_that_epoch() -> None:
    assert not is_below_median((99.0,), FINISHED[:2], maximize=False)
    assert not is_below_median((9.0, 9.0, 99.0), FINISHED, maximize=False)


def test_rungs_triple_from_the_brackets_first() -> None:
    band = Hyperband(min_resource=1, max_resource=27)
    assert band.num_brackets == 4
    rungs = {band.bracket_of(number): band.rungs(number) for number in range(60)}
    assert rungs == {0: [1, 3, 9], 1: [3, 9], 2: [9], 3: []}


def test_brackets_get_trials_in_hyperbands_proportions() -> None:
    band = Hyperband(min_resource=1, max_resource=27)
    counts = [sum(band.bracket_of(number) == s for number in range(490)) for s in range(4)]
    assert counts == pytest.approx([270, 120, 60, 40], abs=4)


def first_of_bracket(band: Hyperband, bracket: int, num: int) -> list[int]:
    return [number for number in range(200) if band.bracket_of(number) == bracket][:num]


def test_only_the_best_third_passes_a_rung() -> None:
    band = Hyperband(min_resource=3, max_resource=27)
    numbers = first_of_bracket(band, 0, 6)
    curves = {number: (9.0, 9.0, float(place)) for place, number in enumerate(numbers)}
    stopped = [number for number in numbers if band.stops(number, curves, maximize=False)]
    assert stopped == numbers[2:]
    best_last = [number for number in numbers if band.stops(number, curves, maximize=True)]
    assert best_last == numbers[:4]


def test_nobody_is_stopped_before_the_least_resource() -> None:
    band = Hyperband(min_resource=3, max_resource=27)
    numbers = first_of_bracket(band, 0, 6)
    curves = {number: (float(place), 1.0) for place, number in enumerate(numbers)}
    assert not any(band.stops(number, curves, maximize=False) for number in numbers)


def test_first_to_reach_a_rung_goes_on_and_a_rung_is_looked_at_once() -> None:
    band = Hyperband(min_resource=1, max_resource=9)
    first, second, *_ = first_of_bracket(band, 0, 2)
    curves = {first: (5.0,), second: ()}
    assert not band.stops(first, curves, maximize=False)
    curves = {first: (5.0, 4.0), second: (1.0,)}
    assert not band.stops(first, curves, seen=1, maximize=False)
    assert band.stops(first, curves, seen=0, maximize=False)


@given(min_resource=st.integers(1, 9), max_resource=st.integers(9, 200), number=st.integers(0, 99))
def test_all_stop_at_the_most_resource(min_resource: int, max_resource: int, number: int) -> None:
    band = Hyperband(min_resource=min_resource, max_resource=max_resource)
    curve = tuple(float(-epoch) for epoch in range(max_resource))
    assert band.stops(number, {number: curve}, maximize=False)
    assert not band.stops(number, {number: curve[:-1]}, maximize=False)
    assert all(min_resource <= rung < max_resource for rung in band.rungs(number))
