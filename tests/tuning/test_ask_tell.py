"""A search in rounds: what is asked follows from what was told, good trials go on, and nothing is asked twice."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import SearchSettings, search_of
from trainyard.tuning.ask_tell import (
    LONG,
    NUM_ROUNDS,
    SHORT,
    TrialResult,
    TrialTraining,
    ask,
    rung_steps,
    winner,
)

RANGES = {
    "learning_rate": {"min_value": 1e-4, "max_value": 1e-1, "scaling_type": "Logarithmic"},
    "warmup_steps": {"min_value": 1, "max_value": 20},
    "precision": ["fp32", "bf16"],
}
STEPS = (100, 300)


def search(**params: Any) -> SearchSettings:
    found = search_of(RunConf.from_mapping({"tune": True, "tuning_ranges": RANGES, **params}))
    assert found is not None
    return found


def loss(asked: TrialTraining) -> float:
    """Return a loss that the learning rate decides, and that more steps make smaller."""
    return (math.log10(asked.values["learning_rate"]) + 2) ** 2 + 100 / asked.num_steps


def searched(
    *, num_jobs: int = 12, at_once: int = 2, seed: int = 0, **params: Any
) -> list[TrialResult]:
    """Return everything told in a whole search."""
    told: list[TrialResult] = []
    for number in range(1, NUM_ROUNDS + 1):
        count = min(at_once, num_jobs - len(told))
        is_last = number == NUM_ROUNDS or len(told) + count >= num_jobs
        batch = ask(search(**params), told, count=count, steps=STEPS, is_last=is_last, seed=seed)
        told += [TrialResult(asked=each, objective=loss(each)) for each in batch]
    return told


def test_twelve_trainings_two_at_a_time_are_eight_trials_of_which_four_go_on() -> None:
    told = searched()

    assert [each.asked.rung for each in told].count(SHORT) == 8
    assert [each.asked.rung for each in told].count(LONG) == 4
    assert {each.asked.num_steps for each in told if each.asked.rung == LONG} == {300}


def test_only_the_best_go_on() -> None:
    told = searched()

    short = {each.asked.number: each.objective for each in told if each.asked.rung == SHORT}
    long = {each.asked.number for each in told if each.asked.rung == LONG}
    best_two = sorted(short, key=lambda number: short[number] or 0.0)[:2]
    assert set(best_two) <= long


def test_no_training_is_asked_for_twice() -> None:
    asked = [(each.asked.number, each.asked.rung) for each in searched()]

    assert len(set(asked)) == len(asked)


def test_the_same_results_give_the_same_trials_whoever_asks() -> None:
    told = searched()[:6]
    again = [TrialResult.from_dict(each.to_dict()) for each in told]

    first = ask(search(), told, count=2, steps=STEPS, is_last=False, seed=3)
    assert ask(search(), again, count=2, steps=STEPS, is_last=False, seed=3) == first


def test_another_seed_gives_another_search() -> None:
    assert searched(seed=1)[0].asked.values != searched(seed=2)[0].asked.values


def test_trials_of_one_round_differ() -> None:
    first, second = ask(search(), [], count=2, steps=STEPS, is_last=False, seed=0)

    assert first.values != second.values
    assert (first.number, second.number) == (1, 2)


def test_values_are_within_their_ranges() -> None:
    for each in searched(num_jobs=24, at_once=4):
        assert 1e-4 <= each.asked.values["learning_rate"] <= 1e-1
        assert each.asked.values["warmup_steps"] in range(1, 21)
        assert each.asked.values["precision"] in {"fp32", "bf16"}


@pytest.mark.parametrize(
    ("scale", "low"),
    [({}, True), ({"scaling_type": "Linear"}, False)],
    ids=["Auto", "Linear"],
)
def test_a_wide_range_is_drawn_by_its_logarithm_unless_it_is_linear(
    scale: dict[str, str], low: bool
) -> None:
    rates = {"learning_rate": {"min_value": 1e-5, "max_value": 0.1, **scale}}
    wanted = search(tuning_ranges=rates, tuning_strategy="Random")

    drawn = ask(wanted, [], count=50, steps=STEPS, is_last=False, seed=0)

    median = statistics.median(each.values["learning_rate"] for each in drawn)
    assert (median < 0.01) == low


def test_what_was_told_draws_the_next_trials_nearer() -> None:
    def distance(told: list[TrialResult]) -> float:
        new = [each.asked for each in told if each.asked.rung == SHORT][-4:]
        return sum(abs(math.log10(each.values["learning_rate"]) + 2) for each in new)

    seeds = range(5)
    learned = sum(distance(searched(num_jobs=36, at_once=6, seed=s)) for s in seeds)
    blind = sum(
        distance(searched(num_jobs=36, at_once=6, seed=s, tuning_strategy="Random")) for s in seeds
    )
    assert learned < 0.7 * blind


def test_the_last_round_trains_no_new_trial() -> None:
    told = searched()[:4]

    batch = ask(search(), told, count=3, steps=STEPS, is_last=True, seed=0)

    assert {each.rung for each in batch} == {LONG}


def test_a_search_of_one_round_has_new_trials_all_the_same() -> None:
    batch = ask(search(), [], count=2, steps=STEPS, is_last=True, seed=0)

    assert [each.rung for each in batch] == [SHORT, SHORT]


def test_failed_trials_do_not_go_on_and_do_not_end_the_search() -> None:
    values = {"learning_rate": 0.01, "warmup_steps": 3, "precision": "fp32"}
    told = [
        TrialResult(
            asked=TrialTraining(number=n, rung=SHORT, num_steps=100, values=values),
            objective=objective,
        )
        for n, objective in enumerate((None, math.nan, 2.0, 3.0), 1)
    ]
    batch = ask(search(), told, count=2, steps=STEPS, is_last=False, seed=0)

    assert [(each.number, each.rung) for each in batch] == [(3, LONG), (5, SHORT)]


@pytest.mark.parametrize("objective", ["validation:loss", "train:tokens_per_second"])
def test_the_winner_is_the_best_of_those_trained_long(objective: str) -> None:
    def told(number: int, rung: int, value: float | None) -> TrialResult:
        return TrialResult(
            asked=TrialTraining(number=number, rung=rung, num_steps=STEPS[rung]), objective=value
        )

    wanted = search(tuning_objective=objective)
    results = [told(1, SHORT, 1.0), told(2, SHORT, 9.0), told(3, LONG, 5.0), told(4, LONG, 6.0)]

    best = winner(wanted, results)
    assert best is not None
    assert best.asked.number == (3 if objective == "validation:loss" else 4)
    short = winner(wanted, results[:2])
    assert short is not None
    assert short.asked.number == (1 if objective == "validation:loss" else 2)
    assert winner(wanted, [told(1, SHORT, None)]) is None


def test_a_long_training_is_never_longer_than_the_final_one() -> None:
    assert rung_steps(search(), max_steps=400) == (100, 300)
    assert rung_steps(search(), max_steps=200) == (100, 200)
