"""Importance: right about what mattered, and silent where the trials do not tell."""

from __future__ import annotations

import math
import random
import sys

import pytest

from trainyard.tuning.importance import fewest_trials, importance

Trial = tuple[dict[str, float | str], float | None]


def bowl(num_trials: int, *, seed: int = 0) -> list[Trial]:
    """Return trials whose loss goes by the logarithm of `rate`, a little by `decay`, not by `kind`."""
    draw = random.Random(seed)  # noqa: S311  # trials, not a secret
    trials: list[Trial] = []
    for _ in range(num_trials):
        rate, decay = 10 ** draw.uniform(-4, -1), draw.uniform(0, 1)
        loss = (math.log10(rate) + 2.5) ** 2 + 0.3 * (decay - 0.5) ** 2
        kind = draw.choice(["a", "b"])
        trials.append(({"rate": rate, "decay": decay, "kind": kind}, loss))
    return trials


def test_the_hyperparameter_that_decides_has_the_largest_share() -> None:
    found = importance(bowl(24), log_scaled=["rate"])

    assert found.why_unknown is None
    assert found.shares[0].name == "rate"
    assert found.to_dict()["rate"] > 0.7
    assert sum(found.to_dict().values()) == pytest.approx(1)
    assert all(0 <= each.low <= each.high <= 1 for each in found.shares)


def test_a_category_can_matter() -> None:
    trials: list[Trial] = [
        (
            {"kind": "good" if index % 2 else "bad", "rate": index / 20},
            index % 2 + 0.001 * (index % 3),
        )
        for index in range(20)
    ]

    assert importance(trials).shares[0].name == "kind"


def test_a_hyperparameter_that_never_varied_has_no_share() -> None:
    trials = [({**values, "decay": 0.1}, loss) for values, loss in bowl(12)]

    assert importance(trials).to_dict()["decay"] == 0


def test_without_optuna_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    assert "trainyard[search]" in str(importance(bowl(24)).why_unknown)


def test_the_same_trials_give_the_same_shares() -> None:
    assert importance(bowl(12)) == importance(bowl(12))


@pytest.mark.parametrize(
    ("num_hyperparameters", "needed"), [(1, 10), (3, 10), (4, 12), (6, 18)], ids=str
)
def test_as_many_trials_are_needed_as_the_docstring_works_out(
    num_hyperparameters: int, needed: int
) -> None:
    assert fewest_trials(num_hyperparameters) == needed


def test_too_few_trials_give_a_sentence_and_no_numbers() -> None:
    failed: Trial = ({"rate": 0.1, "decay": 0.1, "kind": "a"}, None)
    diverged: Trial = ({"rate": 0.2, "decay": 0.1, "kind": "a"}, math.nan)

    found = importance([*bowl(9), failed, diverged])

    assert found.to_dict() == {}
    assert found.why_unknown == (
        "9 trials with a result are too few for 3 hyperparameters: 10 are needed"
    )


def test_trials_that_all_ended_alike_tell_nothing() -> None:
    found = importance([(values, 1.0) for values, _ in bowl(12)])

    assert (found.shares, found.why_unknown) == ((), "all trials gave the same objective")


@pytest.mark.parametrize(
    ("trials", "why_unknown"),
    [
        ([({"a": 1.0}, float(each)) for each in range(12)], "too few trials differ"),
        ([({"a": "x"}, float(each)) for each in range(12)], "too few trials differ"),
        ([({"a": float(each)}, 1.0 if each else 2.0) for each in range(12)], None),
        ([({"a": 3.0 if each % 2 else "none"}, float(each)) for each in range(12)], None),
        ([({"a": float(each)}, each * 1e307) for each in range(12)], None),
    ],
    ids=["no number varies", "no choice varies", "one differs", "numbers and words", "diverged"],
)
def test_odd_trials_tell_what_they_can_and_never_raise(trials, why_unknown) -> None:
    found = importance(trials)

    if why_unknown is None:
        assert found.to_dict() == {"a": 1.0}
    else:
        assert why_unknown in str(found.why_unknown)
        assert found.shares == ()
