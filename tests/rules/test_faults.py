"""Each rule finds its fault in a real training, from the files that it wrote; a healthy one is blamed for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainyard.rules.catalogue import FAMILIES, RULES
from trainyard.rules.configuration import default_rules
from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import Facts

pytest.importorskip("torch")

from tests.rules.faults.matrix import CASES, Case, Matrix

if TYPE_CHECKING:
    from trainyard.rules.evaluation import Verdict

OF_THE_MACHINE = {each.__name__ for each in (*FAMILIES["time"], *FAMILIES["hosts"])}
"""They blame a training that another program keeps waiting, and are right."""
FAST = ("nan", "nan gradient", "rate jumps", "dead", "padding")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """Return what runs each training once."""
    return Matrix(tmp_path_factory.mktemp("faults"))


def check(matrix: Matrix, case: Case) -> None:
    """Assert that the rule finds the fault in time."""
    observed = matrix.observe(case.run)
    latency = case.latency(observed)

    assert latency is not None, (case.verdict(observed), observed.log[-2000:])
    assert latency <= case.within


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.run in FAST], ids=lambda each: each.rule
)
def test_a_fault_is_found(matrix: Matrix, case: Case) -> None:
    check(matrix, case)


def test_a_healthy_training_is_blamed_for_nothing(matrix: Matrix) -> None:
    verdicts: tuple[Verdict, ...] = evaluate(
        default_rules(), matrix.observe("healthy").records, Facts(precision="fp32")
    )

    found = [(each.rule, each.issues[0].text) for each in verdicts if each.issues]
    assert [(rule, text) for rule, text in found if rule not in OF_THE_MACHINE] == []
    assert [each.error for each in verdicts if each.error] == []


def test_every_rule_has_a_fault() -> None:
    assert {case.rule for case in CASES} == set(RULES)


# A training with eight loader processes on a machine with fewer cores.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.slow
@pytest.mark.parametrize(
    "case", CASES, ids=lambda each: f"{each.rule}-{each.run}".replace(" ", "-")
)
def test_every_fault_is_found(matrix: Matrix, case: Case) -> None:
    check(matrix, case)
