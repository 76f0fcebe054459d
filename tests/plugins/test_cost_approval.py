"""A person is asked before a run starts that is expected to cost more than its limit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskAwaitingInput

from tests.plugins.test_notifications import clients, topic
from tests.plugins.test_preflight import preflight
from tests.plugins.test_registration_approval import EVA, questions
from trainyard.errors import BudgetExceededError
from trainyard_airflow.tasks.end_to_end.cost_approval import APPROVE, REJECT
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator

__all__ = ["clients", "questions", "topic"]

pytestmark = pytest.mark.engine


@pytest.fixture
def asked(aws_connection, task, questions) -> dict[str, Any]:
    """What the parked task resumes with."""
    task.id = uuid.uuid4()
    with pytest.raises(TaskAwaitingInput) as parked:
        preflight(task, approval_above_usd=0.001)
    assert parked.value.method_name == "execute_approved"
    return dict(parked.value.kwargs)


def asked_in(messages: list[Any]) -> list[Any]:
    """Return the questions among a task's messages to Airflow."""
    return [each for each in messages if hasattr(each, "options")]


def test_person_is_asked_with_the_estimate(asked, questions):
    (question,) = asked_in(questions)
    assert question.options == [APPROVE, REJECT]
    assert question.defaults == [REJECT]
    assert "approval above: $0.001" in question.body
    assert "- train: $" in question.body


def test_question_is_told_to_the_topic_once_per_try(aws_connection, task, topic, questions):
    arn, received = topic
    task.id = uuid.uuid4()
    for _ in range(2):
        with pytest.raises(TaskAwaitingInput):
            preflight(task, approval_above_usd=0.001, notifications={"topic_arn": arn})

    (message,) = received()
    assert message["MessageAttributes"]["occasion"]["Value"] == "approval"
    lines = message["Message"].splitlines()
    assert lines[0].startswith("The run waits for an answer: Start plugins_test, run run-")
    assert any(each.startswith("estimate: $") for each in lines)
    assert "cost so far: $0.00" in lines
    assert f"otherwise: {REJECT}" in message["Message"]


def test_run_below_its_limit_starts_without_a_person(aws_connection, task, questions):
    assert preflight(task, approval_above_usd=1000.0)["conf"]["approval_above_usd"] == 1000.0
    assert asked_in(questions) == []


def test_run_of_unknown_price_is_asked_about(aws_connection, task, questions):
    task.id = uuid.uuid4()

    with pytest.raises(TaskAwaitingInput):
        preflight(task, approval_above_usd=1000.0, instance_type="ml.c4.xlarge")

    assert "unknown price" in asked_in(questions)[0].body


def test_approved_run_returns_the_state_that_was_asked_about(asked, task):
    event = {"chosen_options": [APPROVE], "responded_by_user": EVA}

    waiting = task.xcoms["trainyard_question"]
    state = PreflightOperator(task_id="preflight").execute_approved(task.context, event, **asked)

    assert waiting["answered_at"] is None
    assert task.xcoms["trainyard_question"]["answered_at"] > waiting["asked_at"]
    assert state == asked["result"]
    assert state["plan"]["estimate"]["usd"]["expected"] > 0.001


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"chosen_options": [REJECT], "responded_by_user": EVA}, "Eva rejected the run"),
        ({"timedout": True, "chosen_options": [REJECT]}, "nobody approved the run's cost in time"),
    ],
    ids=["rejected", "no answer"],
)
def test_run_that_nobody_approved_does_not_start(asked, task, event, words):
    with pytest.raises(BudgetExceededError, match=words):
        PreflightOperator(task_id="preflight").execute_approved(task.context, event, **asked)
