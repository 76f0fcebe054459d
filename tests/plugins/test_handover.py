"""A trigger that is cancelled stops its job, unless another triggerer follows it: told by what Airflow answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from airflow.sdk.execution_time.comms import GetTaskStates, GetXCom, TaskStatesResult, XComResult

from distributed_training.triggers.handover import is_waited_for_elsewhere

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@dataclass(frozen=True, kw_only=True)
class OwnTask:
    dag_id: str = "dag"
    run_id: str = "run"
    task_id: str = "train"
    map_index: int = -1
    try_number: int = 1


@dataclass
class AirflowsAnswers:
    """The far end of a trigger's questions to Airflow."""

    states: dict[str, dict[str, Any]]
    waiting_try: int | None = None
    asked: list[Any] = field(default_factory=list)

    def send(self, question: Any) -> Any:
        self.asked.append(question)
        match question:
            case GetTaskStates():
                return TaskStatesResult(task_states=self.states)
            case GetXCom():
                return XComResult(key=question.key, value=self.waiting_try)
        raise AssertionError(question)


@pytest.mark.parametrize(
    ("states", "waiting_try", "is_elsewhere"),
    [
        ({"run": {"train": "deferred"}}, 1, True),
        ({"run": {"train": "deferred"}}, None, True),
        ({"run": {"train": "deferred"}}, 2, False),
        ({"run": {"train": "failed"}}, 1, False),
        ({"run": {"train": "success"}}, 1, False),
        ({"run": {"train": "queued"}}, 1, False),
        ({}, None, False),
    ],
    ids=[
        "handed over",
        "unknown try",
        "cleared, waits again",
        "failed",
        "success",
        "cleared",
        "deleted",
    ],
)
def test_only_a_deferred_task_of_the_same_try_is_elsewhere(
    monkeypatch, states, waiting_try, is_elsewhere
):
    answers = AirflowsAnswers(states=states, waiting_try=waiting_try)
    monkeypatch.setattr(
        "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", answers, raising=False
    )

    assert asyncio.run(is_waited_for_elsewhere(OwnTask())) is is_elsewhere
    assert answers.asked[0].task_ids == ["train"]
    assert answers.asked[0].run_ids == ["run"]


def test_without_a_triggerer_nobody_else_waits() -> None:
    assert asyncio.run(is_waited_for_elsewhere(None)) is False
