"""The learning rate is judged by itself, and against what was declared."""

from __future__ import annotations

import math

import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, steps
from trainer.schedule import LearningRateSchedule
from trainyard.rules.records import Facts
from trainyard.rules.schedule import declared_rate

DECLARED = Facts(
    peak_learning_rate=1.0, warmup_steps=10, max_steps=110, min_learning_rate_ratio=0.0
)
SCHEDULE = LearningRateSchedule(peak=1.0, warmup_steps=10, max_steps=110, min_ratio=0.0)
NONE = steps(10, loss=1.0)
CASES = [
    JudgedCase(
        name="LRSanity: zero",
        rule="LRSanity",
        faulty=steps(50, learning_rate=0.0),
        healthy=steps(50, learning_rate=lambda step: (step - 1) / 10),
        without=NONE,
        fires=2, onset=0, says="the learning rate is 0", needs="the learning rate of steps",
    ),
    JudgedCase(
        name="LRSanity: not finite",
        rule="LRSanity",
        faulty=steps(50, learning_rate=jump(0.1, math.nan, at=9)),
        healthy=steps(50, learning_rate=0.1),
        without=NONE,
        fires=9, onset=9, says="the learning rate is nan", needs="the learning rate of steps",
        severity="error",
    ),
    JudgedCase(
        name="LRSanity: dropped to zero",
        rule="LRSanity",
        faulty=steps(50, learning_rate=jump(0.1, 0.0, at=9)),
        healthy=steps(51, learning_rate=lambda step: 0.1 * (51 - step) / 50),
        without=NONE,
        fires=9, onset=9, says="the learning rate is 0", needs="the learning rate of steps",
    ),
    JudgedCase(
        name="LRSanity: jump",
        rule="LRSanity",
        faulty=steps(50, learning_rate=lambda step: 0.3 if step == 40 else 0.1),
        healthy=steps(50, learning_rate=lambda step: 0.19 if step == 40 else 0.1),
        without=NONE,
        fires=40, onset=40, says="jumped from 0.1 to 0.3", needs="the learning rate of steps",
    ),
    JudgedCase(
        name="LRSanity: far above the highest",
        rule="LRSanity",
        faulty=steps(90, learning_rate=lambda step: 0.3 if step == 80 else 0.1 * (100 - step) / 100),
        healthy=steps(90, learning_rate=lambda step: 0.1 if step % 40 == 0 else 0.1 * (40 - step % 40) / 40),
        without=NONE,
        fires=80, onset=80, says="jumped from 0.021 to 0.3", needs="the learning rate of steps",
    ),
    JudgedCase(
        name="LRSanity: jumps against the declared schedule",
        rule="LRSanity",
        facts=DECLARED,
        faulty=steps(110, learning_rate=lambda step: SCHEDULE.at(step - 1) * (3 if step == 40 else 1)),
        healthy=steps(110, learning_rate=lambda step: SCHEDULE.at(step - 1)),
        without=NONE,
        fires=40, onset=40, says="the declared schedule has", needs="the learning rate of steps",
        severity="error",
    ),
    JudgedCase(
        name="LRSanity: not what was declared",
        rule="LRSanity",
        facts=DECLARED,
        faulty=steps(110, learning_rate=lambda step: SCHEDULE.at(step - 1) * (0.9 if step > 30 else 1)),
        healthy=steps(110, learning_rate=lambda step: SCHEDULE.at(step - 1)),
        without=NONE,
        fires=31, onset=31, says="the declared schedule has 0.9", needs="the learning rate of steps",
        severity="error",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_the_declared_schedule_is_the_trainers() -> None:
    assert declared_rate(DECLARED, 5) == (0.5, 1.0)
    assert declared_rate(DECLARED, 10) == (1.0, 1.0)
    assert declared_rate(DECLARED, 61) == (pytest.approx(0.5), 1.0)
    assert [declared_rate(DECLARED, step) for step in range(1, 111)] == [
        (pytest.approx(SCHEDULE.at(step - 1)), 1.0) for step in range(1, 111)
    ]
    assert declared_rate(Facts(max_steps=110), 5) is None


def test_a_long_warm_up_logged_every_tenth_step_is_no_jump() -> None:
    rising = steps(40, every=10, learning_rate=lambda step: 1e-3 * min(step, 100) / 100)

    assert judged("LRSanity", rising).issues == ()


HEALTHY = {
    "linear to zero, a line each tenth": steps(
        10, every=200, learning_rate=lambda step: 1e-4 * (2000 - step) / 2000
    ),
    "warm restarts": steps(400, learning_rate=lambda step: 1e-4 * (101 - step % 100) / 100),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_schedule_that_nobody_declared_is_no_fault(name: str) -> None:
    assert judged("LRSanity", HEALTHY[name]).issues == ()
