"""No healthy training is stopped by default; benchmarks/rule_health.py has the same at length, with the warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.health.blame import blame
from tests.rules.health.curves import FAMILIES, draw_curve

if TYPE_CHECKING:
    from pathlib import Path

TRAINED = ("biases before BatchNorm", "fp16, the scale overflows", "one NaN batch, skipped")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_healthy_curve_is_not_stopped(family: str) -> None:
    curve = draw_curve(family, 0, max_steps=500)

    found = blame(curve.records(every=1), curve.facts)

    assert {rule: issue.text for rule, issue in found.stops.items()} == {}
    assert found.errors == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_healthy_curve_is_not_stopped_in_a_new_job(family: str) -> None:
    curve = draw_curve(family, 1, max_steps=3000)

    found = blame(curve.records(every=10, begin=1500), curve.facts)

    assert {rule: issue.text for rule, issue in found.stops.items()} == {}


@pytest.mark.parametrize("name", TRAINED)
def test_a_healthy_training_is_not_stopped(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.rules.health.trainings import Trainings

    _, found = Trainings(tmp_path).judge(name, 0)

    assert {rule: issue.text for rule, issue in found.stops.items()} == {}
    assert found.errors == {}
