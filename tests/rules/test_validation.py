"""Each rule on the validation loss fires at its step, spares a healthy neighbor, and does not guess."""

from __future__ import annotations

import pytest

from tests.rules.judged import JudgedCase, check_case
from tests.rules.series import merged, steps, validations
from trainyard.rules.rule import RuleProfile

TRAIN = steps(100, loss=2.0)
FALLING = [3.0 - 0.01 * n for n in range(40)]
CASES = [
    JudgedCase(
        name="Overfit: documented",
        rule="Overfit",
        profile=RuleProfile.DOCUMENTED,
        faulty=merged(TRAIN, validations([2.0, 2.1, 2.19, 2.21, 2.3])),
        healthy=merged(TRAIN, validations([2.0, 2.1, 2.19, 2.19])),
        without=TRAIN,
        fires=40, onset=40, says="above the training loss 2, 1 validations", needs="training and validation losses",
    ),
    JudgedCase(
        name="Overfit: robust",
        rule="Overfit",
        faulty=merged(TRAIN, validations([2.3, 2.42, 2.45, 2.5, 2.6])),
        healthy=merged(TRAIN, validations([2.9, 2.8, 2.7, 2.6, 2.5, 2.45])),
        without=validations([2.0, 2.1]),
        fires=40, onset=20, says="3 validations in a row", needs="no training loss between validations",
    ),
    JudgedCase(
        name="Overtraining: documented",
        rule="Overtraining",
        profile=RuleProfile.DOCUMENTED,
        parameters={"patience_train": 100},
        faulty=validations([3.0, 2.5, *[2.495] * 12]),
        healthy=validations([3.0, 2.5, *[2.495] * 8, 2.4]),
        without=validations([3.0] * 10),
        fires=120, onset=30, says="no better by 0.01 for 10 observations", needs="needs more than 10",
    ),
    JudgedCase(
        name="Overtraining: the training loss",
        rule="Overtraining",
        profile=RuleProfile.DOCUMENTED,
        faulty=steps(20, loss=lambda step: max(2.0 - 0.1 * step, 1.0)),
        healthy=steps(20, loss=lambda step: 2.0 - 0.1 * step),
        without=steps(5, loss=2.0),
        fires=15, onset=11, says="best 1, now 1", needs="5 training losses",
    ),
    JudgedCase(
        name="Overtraining: robust",
        rule="Overtraining",
        faulty=validations([*FALLING, *[3.0] * 45]),
        healthy=validations([*FALLING, *[3.0] * 15, 2.5]),
        without=validations([3.0] * 10),
        fires=800, onset=410, says="for 40 observations: best 2.61", needs="needs more than 10",
    ),
    JudgedCase(
        rule="ValRise",
        faulty=validations([3.0, 2.0, 2.0, *[2.6] * 8]),
        healthy=validations([3.0, 2.0, 2.0, 2.6, 2.6, 1.9, 1.9, 1.9, 1.9]),
        without=validations([3.0]),
        fires=60, onset=40, says="above 1.05 times its best", needs="needs two",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)
