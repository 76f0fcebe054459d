"""Rules of the run's author: expressions that can do nothing but compare, and functions from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rules.series import jump, merged, steps, validations
from trainyard.errors import SpecError
from trainyard.rules.configuration import configured_rules
from trainyard.rules.evaluation import MOST_ISSUES, evaluate
from trainyard.rules.expression import Expression
from trainyard.rules.records import Start, StepRecord
from trainyard.rules.rule import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.rules.evaluation import Verdict
    from trainyard.rules.records import Record

RUN = merged(
    steps(
        60,
        loss=lambda step: 3.0 - step / 100,
        gradient_norm=jump(1.0, 4.0, at=41),
        learning_rate=0.1,
    ),
    validations([2.0, 1.0, 1.5, 1.2, 1.1, 1.0]),
)


def found(expression: str, records: list[Record] = RUN, **parameters: Any) -> Verdict:
    """Return the verdict of one expression."""
    wanted = {"name": "mine", "expression": expression, "parameters": parameters}
    return evaluate(configured_rules([wanted]), records)[0]


@pytest.mark.parametrize(
    ("expression", "step"),
    [
        ("loss < 2.5", 51),
        ("gradient_norm > 3 * median(gradient_norm, 20) and step > 10", 41),
        ("gradient_norm > 3 * mean(gradient_norm, 1)", None),
        ("mean(loss, 10) - loss > 0.044", 10),
        ("previous(loss, 10) - loss > 0.0999", 11),
        ("first(loss) - loss >= 0.295", 31),
        ("validation_loss > 1.2 * best(validation_loss)", 30),
        ("validation_loss > loss", None),
        ("loss - validation_loss > 1.78", 20),
        ("highest(gradient_norm, 5) - lowest(gradient_norm, 5) == 3", 41),
        ("std(gradient_norm, 4) > 1.4", 42),
        ("not 1 < loss < 2.5 or -loss > 0", 1),
        ("max(loss, gradient_norm, 3.5) != 3.5", 41),
        ("sqrt(gradient_norm) + abs(-1) + exp(0) + log(1) ** 2 > 3.9", 41),
        ("learning_rate / 2 == 0.05 and step % 7 == 0", 7),
        ("isfinite(loss) == False or isnan(loss)", None),
        ("True and step >= 3", 3),
    ],
)
def test_an_expression_is_an_issue_where_it_is_true(expression: str, step: int | None) -> None:
    verdict = found(expression)

    assert verdict.error is None
    assert verdict.num_judged > 0
    assert (verdict.issues[0].step if verdict.issues else None) == step


def test_an_expression_counts_as_it_is_told_and_shows_its_operands() -> None:
    verdict = found("gradient_norm > 3", persistence=5, warm_up=43)

    assert [issue.step for issue in verdict.issues] == [48]
    assert verdict.issues[0].text == "gradient_norm > 3: gradient_norm 4"
    assert (verdict.name, verdict.rule, verdict.origin) == (
        "mine",
        "Expression",
        "the run's author",
    )


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("step_seconds > 1", "step_seconds was not observed"),
        ("previous(loss, 100) > loss", "loss has no value that is at least 100 steps old"),
        ("loss / (learning_rate - 0.1) > 1", "division by zero"),
        ("log(-loss) > 1", "math domain error"),
        ("mean(validation_accuracy, 10) > 1", "validation_accuracy was not observed"),
    ],
)
def test_what_cannot_be_told_is_not_evaluated(expression: str, why: str) -> None:
    verdict = found(expression)

    assert verdict.issues == ()
    assert why in str(verdict.not_evaluated)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("los > 3", "did you mean 'loss'"),
        ("__import__('os').system('true')", "has the syntax Call, which is not allowed"),
        ("open('x')", "calls the unknown function 'open'"),
        ("meen(loss, 3) > 1", "did you mean 'mean'"),
        ("loss.__class__", "has the syntax Attribute"),
        ("[1 for _ in (1, 2)]", "has the syntax ListComp"),
        ("(lambda: 1)()", "has the syntax Call"),
        ("loss if step else 1", "has the syntax IfExp"),
        ("'text' == 1", "has the syntax Constant"),
        ("1j > 0", "has the syntax Constant"),
        ("loss[0]", "has the syntax Subscript"),
        ("loss // 2", "has an operator that is not allowed"),
        ("~step", "has an operator that is not allowed"),
        ("loss in (1, 2)", "compares in a way that is not allowed"),
        ("loss is 3", "compares in a way that is not allowed"),
        ("mean(loss) > 1", "calls mean with wrong operands"),
        ("mean(loss, 2.5) > 1", "calls mean with wrong operands"),
        ("mean(loss + 1, 3) > 1", "calls mean with wrong operands"),
        ("best(loss, 3) > 1", "calls best with wrong operands"),
        ("abs(loss, 3) > 1", "calls abs with the wrong number of operands"),
        ("abs(x=1)", "has the syntax Call"),
        ("loss >", "is not an expression"),
        ("", "is not an expression"),
        ("1" * 501, "is longer than 500 characters"),
        ("-" * 499 + "1", ""),
    ],
)
def test_anything_else_is_refused_with_its_place(expression: str, words: str) -> None:
    if not words:
        assert found(expression).error is None  # deep, but understood
        return
    with pytest.raises(SpecError) as raised:
        Expression(expression=expression)

    assert words in str(raised.value)


def test_powers_cannot_be_made_to_cost_time() -> None:
    assert "math range error" in str(found("9.0 ** 9.0 ** 9.0 > 1").not_evaluated)


def test_a_restart_winds_an_expression_back() -> None:
    again = [*RUN, Start(step=20, attempt=2), *[each for each in RUN if each.step > 20]]

    assert found("previous(loss, 10) - loss < 0.09", again).issues == ()


SOURCE = """
from dataclasses import dataclass
from trainyard.rules.records import StepRecord
from trainyard.rules.rule import Judgement, Rule, Severity, Stateless

def too_hot(record, history, *, limit=3.0):
    if record.gradient_norm > limit:
        return f"norm {record.gradient_norm} after {len(history)} steps"

def broken(record, history):
    return record.loss / 0

@dataclass(frozen=True, slots=True, kw_only=True)
class Low(Rule):
    READS = (StepRecord,)
    NEEDS = "losses"
    limit: float = 0.0

    def watch(self, facts):
        return Stateless(self.judge)

    def judge(self, record):
        yield Judgement(is_violated=record.loss < self.limit, text=f"loss {record.loss:.2f}")

@dataclass(frozen=True, slots=True, kw_only=True)
class Louder(Low):
    def judge(self, record):
        severity = Severity.ERROR if record.step == 60 else Severity.WARNING
        yield Judgement(is_violated=True, key=str(record.step), severity=severity)

@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Rule):
    READS = (StepRecord,)
    NEEDS = "losses"
"""


def of_file(folder: Path, place: str, **parameters: Any) -> Verdict:
    """Return the verdict of one rule in a file."""
    (folder / "mine.py").write_text(SOURCE)
    wanted = {"name": "mine", "file": place, "parameters": parameters}
    return evaluate(configured_rules([wanted], folder=folder), RUN)[0]


def test_a_function_and_a_class_of_a_file_are_rules(tmp_path: Path) -> None:
    hot = of_file(tmp_path, "mine.py:too_hot", limit=3.5, persistence=2)
    low = of_file(tmp_path, "mine.py:Low", limit="2.5", warm_up=55)

    assert [(issue.step, issue.text) for issue in hot.issues] == [(42, "norm 4.0 after 42 steps")]
    assert hot.parameters == {"warm_up": 0, "persistence": 2, "limit": "3.5"}
    assert [(issue.step, issue.text) for issue in low.issues] == [(56, "loss 2.44")]


def test_a_rule_that_fails_says_nothing_of_the_training(tmp_path: Path) -> None:
    verdict = of_file(tmp_path, "mine.py:broken")

    assert (verdict.status, verdict.issues) == ("Error", ())
    assert verdict.status_details == (
        "InternalServerError: the rule failed at step 1: ZeroDivisionError: float division by zero"
    )


@pytest.mark.parametrize(
    ("place", "parameters", "words"),
    [
        ("mine.py", {}, "does not name a rule in a file"),
        ("other.py:too_hot", {}, "does not exist or is a folder"),
        ("mine.py:too_hat", {}, "did you mean 'too_hot'?"),
        ("mine.py:StepRecord", {}, "has no function and no Rule dataclass named StepRecord"),
        ("mine.py:too_hot", {"limt": 1}, "got an unexpected keyword argument 'limt'"),
        ("mine.py:too_hot", {"warm_up": "abc"}, "rules[0].warm_up: has the wrong type or value"),
        ("mine.py:too_hot", {"persistence": 2.9}, "rules[0].persistence: has the wrong type"),
        ("mine.py:Low", {"limt": 1}, "did you mean 'limit'?"),
        ("bad.py:f", {}, "bad.py raises an error"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(
    tmp_path: Path, place: str, parameters: dict[str, Any], words: str
) -> None:
    (tmp_path / "bad.py").write_text("1 / 0")

    with pytest.raises(SpecError) as raised:
        of_file(tmp_path, place, **parameters)

    assert words in str(raised.value)


def test_a_rule_of_a_file_that_evaluates_nothing_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"class Idle defines neither judge\(\) nor watch\(\)"):
        of_file(tmp_path, "mine.py:Idle")


def test_a_conf_may_not_name_a_file() -> None:
    with pytest.raises(
        SpecError, match="is not allowed in a run's conf, because a rule file is code"
    ):
        configured_rules([{"name": "x", "file": "mine.py:too_hot"}])


def test_the_worst_issue_is_listed_however_late_it_comes(tmp_path: Path) -> None:
    verdict = of_file(tmp_path, "mine.py:Louder")

    assert (len(verdict.issues), verdict.num_issues) == (MOST_ISSUES, 60)
    assert verdict.worst is Severity.ERROR


def test_only_steps_reach_a_function(tmp_path: Path) -> None:
    assert of_file(tmp_path, "mine.py:too_hot").num_judged == sum(
        isinstance(each, StepRecord) for each in RUN
    )
