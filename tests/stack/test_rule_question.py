"""A run asks a person, somebody answers by REST, and the run goes on to its end: after a rule's stop, for a model."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.limits import EVENT_LIMIT_S
from tests.stack.small_run import SMALL_RUN, SUCCEEDED
from trainyard.stack.airflow_api import USER

if TYPE_CHECKING:
    from tests.stack.live_stack import LiveStack

MANUAL = "train_end_to_end"
OWN, APPROVE = "train_own_script", "Register the model"
ANSWER = "Continue from the last checkpoint"
ASKING_RUN = {
    **SMALL_RUN,
    "max_steps": 2000,
    "eval_interval": 1000,
    "rules": [{"name": "fortieth", "expression": "step == 40", "action": "stop"}],
    "rules_poll_interval_s": 1,
    "on_rule_stop": {"action": "ask", "timeout_s": 240, "default": "end"},
}

pytestmark = pytest.mark.slow


def question_of(
    stack: LiveStack, run_id: str, *, dag_id: str = MANUAL, task_id: str = "train"
) -> tuple[requests.Session, str, dict[str, Any]]:
    """Wait until a task asks; return a session that is logged in, the question's address and the question."""
    stack.wait(
        lambda: any(
            (task["task_id"], task["state"]) == (task_id, "awaiting_input")
            for task in stack.api.tasks(dag_id, run_id)
        ),
        "the question",
    )
    session = requests.Session()
    login = {"username": USER, "password": stack.password}
    token = session.post(f"{stack.url}/auth/token", json=login, timeout=EVENT_LIMIT_S).json()[
        "access_token"
    ]
    session.headers["Authorization"] = f"Bearer {token}"
    task = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1"
    address = f"{stack.url}/api/v2/{task}/hitlDetails"
    return session, address, session.get(address, timeout=EVENT_LIMIT_S).json()


def seconds_of(stack: LiveStack, dag_id: str, run_id: str) -> dict[str, float]:
    """Return the run's wall time by cause from its report."""
    uri = stack.api.xcom(dag_id, run_id, "report", "return_value")["report_json"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    record = json.loads(stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
    return dict(record["goodput"]["seconds"])


def test_a_run_goes_on_as_somebody_answers_by_rest(stack: LiveStack) -> None:
    began = datetime.now(UTC)
    stack.api.set_paused(MANUAL, paused=False)
    run_id = stack.api.trigger(MANUAL, conf=ASKING_RUN)

    session, address, question = question_of(stack, run_id)
    answered = session.patch(address, json={"chosen_options": [ANSWER]}, timeout=EVENT_LIMIT_S)
    states = stack.end_of(MANUAL, run_id)

    assert question["subject"].startswith("Rule fortieth stopped the training at step 40")
    assert question["defaults"] == ["End the training"]
    assert answered.ok, answered.text
    assert states == SUCCEEDED, states
    assert seconds_of(stack, MANUAL, run_id)["waiting for a person"] > 0
    found = stack.client("sagemaker").list_training_jobs(CreationTimeAfter=began)
    statuses = sorted(each["TrainingJobStatus"] for each in found["TrainingJobSummaries"])
    assert statuses == ["Completed", "Stopped"]


def test_a_model_is_registered_as_somebody_answers_by_rest(stack: LiveStack) -> None:
    stack.api.set_paused(OWN, paused=False)
    conf = {"entry_point": "train.py", "source_dir": "docs/examples/clients/code"}
    conf |= {"instance_count": 1, "watch_rules": False, "approval": True}
    run_id = stack.api.trigger(OWN, conf=conf)

    session, address, question = question_of(stack, run_id, dag_id=OWN, task_id="register")
    answered = session.patch(address, json={"chosen_options": [APPROVE]}, timeout=EVENT_LIMIT_S)
    states = stack.end_of(OWN, run_id)

    assert question["subject"] == f"Register the model of {OWN}, run {run_id}?"
    assert question["defaults"] == ["Do not register it"]
    assert answered.ok, answered.text
    assert {states[each] for each in ("train", "register", "report", "outcome")} == {"success"}
    assert seconds_of(stack, OWN, run_id)["waiting for a person"] > 0
