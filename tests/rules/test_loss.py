"""Each rule on the loss fires at its step, spares a healthy neighbor, and does not guess."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, noisy, steps
from trainyard.rules.records import Facts, Start
from trainyard.rules.rule import RuleProfile

STAGES = ([80, 120, 220, 300, 400, 480], [-2.0, 1.2, 1.3, 3.0, 3.3, 8.5])
"""Steps, and powers of ten between which a value loss grows under a curriculum of rewards."""
NO_LOSS = steps(300, gradient_norm=1.0)
CASES = [
    JudgedCase(
        rule="NonFinite",
        facts=Facts(precision="bf16", skipped_steps=0),
        faulty=steps(60, loss=jump(2.0, math.nan, at=40), gradient_norm=jump(1.0, math.nan, at=40)),
        healthy=steps(60, loss=2.0, gradient_norm=1.0),
        without=steps(60, learning_rate=0.1),
        fires=40, onset=40, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: the gradient norm is not told",
        rule="NonFinite",
        facts=Facts(precision="bf16", skipped_steps=0),
        faulty=steps(60, loss=jump(2.0, math.nan, at=40)),
        healthy=steps(60, loss=2.0),
        without=steps(60, learning_rate=0.1),
        fires=40, onset=40, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: the script may skip steps",
        rule="NonFinite",
        facts=Facts(precision="bf16"),
        faulty=steps(60, loss=jump(2.0, math.nan, at=40), gradient_norm=jump(1.0, math.nan, at=40)),
        healthy=steps(60, loss=jump(2.0, math.nan, at=57), gradient_norm=jump(1.0, math.nan, at=57)),
        without=[],
        fires=44, onset=40, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: the run has continued after such a loss",
        rule="NonFinite",
        faulty=steps(90, loss=lambda step: math.nan if step == 10 or step >= 40 else 2.0),
        healthy=steps(90, loss=lambda step: math.nan if step == 10 or 40 <= step < 79 else 2.0),
        without=[],
        fires=79, onset=40, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: fp16 skips steps with infinite losses",
        rule="NonFinite",
        facts=Facts(precision="fp16", skipped_steps=0),
        faulty=steps(60, loss=jump(2.0, math.inf, at=40), gradient_norm=jump(1.0, math.nan, at=40)),
        healthy=steps(
            60,
            loss=lambda step: math.inf if step % 5 == 0 else 2.0,
            gradient_norm=lambda step: math.nan if step % 5 == 0 else 1.0,
        ),
        without=[],
        fires=44, onset=40, says="the loss is inf", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: batches without a label",
        rule="NonFinite",
        facts=Facts(precision="bf16"),
        faulty=steps(60, loss=jump(2.0, math.nan, at=20), gradient_norm=jump(1.0, 0.0, at=20)),
        healthy=steps(60, loss=jump(2.0, math.nan, at=22), gradient_norm=jump(1.0, 0.0, at=22)),
        without=[],
        fires=59, onset=20, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: gradient norm",
        rule="NonFinite",
        facts=Facts(precision="bf16", skipped_steps=0),
        faulty=steps(60, loss=2.0, gradient_norm=jump(1.0, math.inf, at=33)),
        healthy=steps(60, loss=2.0, gradient_norm=1e30),
        without=[],
        fires=33, onset=33, says="the gradient norm is inf", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: fp16 skips steps",
        rule="NonFinite",
        facts=Facts(precision="fp16"),
        faulty=steps(100, loss=2.0, gradient_norm=jump(1.0, math.inf, at=33)),
        healthy=steps(100, loss=2.0, gradient_norm=lambda step: math.inf if step <= 33 else 1.0),
        without=[],
        fires=72, onset=33, says="the gradient norm is inf", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: a loss scaler may be there",
        rule="NonFinite",
        faulty=steps(100, loss=2.0, gradient_norm=jump(1.0, math.inf, at=33)),
        healthy=steps(100, loss=2.0, gradient_norm=lambda step: math.inf if step <= 33 else 1.0),
        without=[],
        fires=72, onset=33, says="the gradient norm is inf", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        name="NonFinite: the script skips batches",
        rule="NonFinite",
        facts=Facts(precision="bf16", skipped_steps=5),
        faulty=steps(60, loss=jump(2.0, math.nan, at=33), gradient_norm=jump(1.0, math.nan, at=33)),
        healthy=steps(
            60,
            loss=lambda step: math.nan if step % 6 else 2.0,
            gradient_norm=lambda step: math.nan if step % 6 else 1.0,
        ),
        without=[],
        fires=38, onset=33, says="the loss is nan", needs="the loss or the gradient norm",
        severity="error",
    ),
    JudgedCase(
        rule="LossSpike",
        faulty=steps(120, loss=lambda step: 3.5 if 80 <= step < 83 else noisy(2.0, 0.02)(step)),
        healthy=steps(120, loss=lambda step: 3.5 if 80 <= step < 82 else noisy(2.0, 0.02)(step)),
        without=NO_LOSS,
        fires=82, onset=80, says="3 observations in a row", needs="the loss of steps",
    ),
    JudgedCase(
        name="LossSpike: diverges",
        rule="LossSpike",
        parameters={"patience": 1000},
        faulty=steps(300, loss=lambda step: 2.0 if step < 80 else 9.0 * 2 ** ((step - 80) / 2)),
        healthy=steps(300, loss=lambda step: 2.0 if step < 80 else 9.0 + step / 20),
        without=steps(7, loss=2.0),
        fires=180, onset=80, says="2 times the highest before, 2, and not slowing", needs="7 losses; needs 8",
        severity="error",
    ),
    JudgedCase(
        name="LossSpike: diverges, and a loss that starts at zero",
        rule="LossSpike",
        parameters={"patience": 1000},
        faulty=steps(300, loss=lambda step: 1e-4 if step < 80 else 4.0 * 2 ** ((step - 80) / 2)),
        healthy=steps(300, loss=lambda step: 1e-4 + 8 / (1 + math.exp((120 - step) / 10))),
        without=steps(7, loss=2.0),
        fires=180, onset=80, says="2 times the highest before, 1, and not slowing", needs="7 losses; needs 8",
        severity="error",
    ),
    JudgedCase(
        name="LossSpike: diverges, and a loss that grows in stages",
        rule="LossSpike",
        parameters={"patience": 1000},
        faulty=steps(300, loss=lambda step: 2.0 if step < 80 else 9.0 * 2 ** ((step - 80) / 2)),
        healthy=steps(600, loss=lambda step: 10 ** float(np.interp(step, *STAGES))),
        without=steps(7, loss=2.0),
        fires=180, onset=80, says="2 times the highest before, 2, and not slowing", needs="7 losses; needs 8",
        severity="error",
    ),
    JudgedCase(
        name="LossSpike: every tenth step is logged",
        rule="LossSpike",
        faulty=steps(40, every=10, loss=jump(2.0, 3.5, at=200)),
        healthy=steps(40, every=10, loss=jump(2.0, 2.9, at=200)),
        without=NO_LOSS,
        fires=220, onset=200, says="1.8 times the median 2", needs="the loss of steps",
    ),
    JudgedCase(
        name="LossNotDecreasing: documented",
        rule="LossNotDecreasing",
        profile=RuleProfile.DOCUMENTED,
        faulty=steps(60, loss=lambda step: max(2.0 - 0.01 * step, 1.75)),
        healthy=steps(60, loss=lambda step: 2.0 - 0.01 * step),
        without=steps(10, loss=2.0),
        fires=41, onset=26, says="from 1.75 to 1.75 the loss fell by 0 %", needs="10 steps apart",
    ),
    JudgedCase(
        name="LossNotDecreasing: robust",
        rule="LossNotDecreasing",
        faulty=steps(400, loss=lambda step: noisy(2.0 + max(0, step - 150) * 0.01, 0.01)(step)),
        healthy=steps(400, loss=noisy(2.0, 0.05)),
        without=steps(90, loss=2.0),
        fires=201, onset=151, says="the loss rose by", needs="100 steps apart",
    ),
    JudgedCase(
        rule="NotLearning",
        faulty=steps(260, loss=noisy(4.0, 0.01)),
        healthy=steps(260, loss=lambda step: noisy(4.0 - step * 0.002, 0.01)(step)),
        without=steps(199, loss=4.0),
        fires=200, onset=0, says="less than 3% were learned", needs="needs 200 steps",
    ),
    JudgedCase(
        name="NotLearning: long warm-up",
        rule="NotLearning",
        faulty=steps(700, loss=4.0, learning_rate=lambda step: min(step, 500) / 500),
        healthy=steps(700, loss=jump(4.0, 3.0, at=450), learning_rate=lambda step: min(step, 500) / 500),
        without=steps(500, loss=4.0, learning_rate=lambda step: step / 500),
        fires=600, onset=0, says="less than 3%", needs="rising until 500",
    ),
    JudgedCase(
        name="NotLearning: a tenth of a long run",
        rule="NotLearning",
        facts=Facts(max_steps=5000),
        faulty=steps(600, loss=noisy(4.0, 0.01)),
        healthy=steps(600, loss=lambda step: noisy(4.0 - max(0, step - 300) * 0.002, 0.01)(step)),
        without=[Start(step=1200), *(r for r in steps(2000, loss=4.0) if r.step > 1200)],
        fires=500, onset=0, says="less than 3%", needs="the first losses were not observed: they begin after step 1200",
    ),
    JudgedCase(
        name="NotLearning: within the noise",
        rule="NotLearning",
        faulty=steps(260, loss=noisy(1.6, 0.01)),
        healthy=steps(260, loss=noisy(1.6, 0.2)),
        without=steps(260, loss=noisy(0.0, 1.0)),
        fires=200, onset=0, says="less than 3%", needs="needs losses above 0",
    ),
    JudgedCase(
        rule="Plateau",
        faulty=steps(800, loss=lambda step: max(4.0 - 0.01 * step, 1.6)),
        healthy=steps(600, loss=lambda step: noisy(1.0 + 3.0 * step**-0.5, 0.01)(step)),
        without=steps(600, loss=noisy(2.0, 0.2)),
        fires=718, onset=240, says="a fall of", needs="too noisy",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_one_bad_batch_is_no_spike_and_does_not_shift_the_median() -> None:
    losses = steps(200, loss=lambda step: 1e4 if step in {90, 91} else 2.0)

    assert judged("LossSpike", losses).status == "NoIssuesFound"
    assert (
        judged("NotLearning", steps(200, loss=lambda s: 1e4 if s == 150 else 2.0 - s / 200)).issues
        == ()
    )


@pytest.mark.parametrize("power", [1, 2, 4])
@pytest.mark.parametrize("every", [1, 10])
def test_growth_that_slows_down_is_no_divergence(power: int, every: int) -> None:
    rising = steps(2000 // every, every=every, loss=lambda step: 1e-3 + (step / 20) ** power)

    assert [each for each in judged("LossSpike", rising).issues if each.severity == "error"] == []


@pytest.mark.parametrize("every", [1, 10])
def test_a_descent_above_its_stable_rate_diverges(every: int) -> None:
    curvatures, rate = (0.1, 1.0, 2.0), 1.03

    def loss(step: int) -> float:
        """The square loss of gradient descent with the rate, 3 % above 2 / the largest curvature."""
        return sum(
            c * (1e-3 if c == 2.0 else 1.0) * (1 - rate * c) ** (2 * step) for c in curvatures
        )

    found = judged("LossSpike", steps(400 // every, every=every, loss=loss)).issues

    assert "error" in [each.severity for each in found]


@pytest.mark.parametrize("every", [1, 10])
def test_exponential_growth_that_a_critic_reaches_is_no_divergence(every: int) -> None:
    """Scores of 100,000 without normalized returns: errors of 5 % square to 2.5e7."""

    def loss(step: int) -> float:
        returns = 1e5 / (1 + math.exp((1000 - step) / 40))
        return 0.05 + (0.05 * returns) ** 2

    found = judged("LossSpike", steps(2000 // every, every=every, loss=loss)).issues

    assert {each.severity for each in found} == {"warning"}


def test_a_spike_that_ends_and_comes_again_is_two_issues() -> None:
    twice = steps(200, loss=lambda step: 3.5 if step in {80, 81, 82, 120, 121, 122} else 2.0)

    assert [issue.step for issue in judged("LossSpike", twice).issues] == [82, 122]
