"""A person is asked before a model is registered, and only for a model that its condition lets pass."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from tests.plugins.conftest import TaskSurroundings
from trainyard.errors import SpecError
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf
from trainyard_airflow.tasks.end_to_end.registration import (
    APPROVE,
    REJECT,
    RegisterIfGoodOperator,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

MODEL = "s3://bucket/model.tar.gz"
EVA = {"name": "Eva"}


class ApprovalSupervisor:
    """Airflow's process beside the task's: it gets the question."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def send(self, msg: Any) -> None:
        self.got.append(msg)


@dataclass
class RegisterSurroundings(TaskSurroundings):
    """The surroundings of `register`, with what the tasks before it returned."""

    id: uuid.UUID = field(default_factory=uuid.uuid4)

    def xcom_pull(self, task_ids: str, key: str = "return_value", **_: Any) -> Any:
        return self.xcoms.get(task_ids if key == "return_value" else key)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that reach the supervisor."""
    made = ApprovalSupervisor()
    place = "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS"
    monkeypatch.setattr(place, made, raising=False)
    return made.got


@pytest.fixture
def surroundings() -> RegisterSurroundings:
    """`register` of a run that asks a person, with a gain of 0.5."""
    conf = ScriptConf(
        entry_point="train.py",
        source_dir="scripts",
        evaluation_entry_point="evaluate.py",
        register_when="gain > 0.1",
        approval=True,
        approval_timeout_s=60,
    )
    paths = RunPaths(bucket="bucket", prefix="p", dag_id="d", run_id="r")
    role = "arn:aws:iam::000000000000:role/role"
    state = RunState(conf=conf, paths=paths, role=role, region="us-east-1", plan={})
    made = RegisterSurroundings(task_id="register")
    made.xcom_push("preflight", state.to_dict())
    made.xcom_push("train", {"model_artifact": MODEL, "final_metrics": {}})
    made.xcom_push("evaluate", {"metrics": {"gain": 0.5, "test_loss": 1.25}})
    return made


def register() -> RegisterIfGoodOperator:
    """Return the task."""
    version = ModelVersion(
        group="approved", model_artifact=MODEL, source=f"job-{uuid.uuid4().hex[:8]}"
    )
    return RegisterIfGoodOperator(task_id="register", version=version)


def test_a_person_is_asked_with_the_figures(
    questions: list[Any], surroundings: RegisterSurroundings
) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        register().execute(surroundings.context)

    (asked,) = questions
    assert asked.options == [APPROVE, REJECT]
    assert asked.defaults == [REJECT]
    for each in ("gain: 0.5", "test_loss: 1.25", MODEL, "register_when: gain > 0.1", "0:01:00"):
        assert each in asked.body
    assert parked.value.timeout.total_seconds() == 60
    assert parked.value.method_name == "execute_answered"


def test_a_person_is_asked_about_a_shipped_model_too(
    questions: list[Any], surroundings: RegisterSurroundings
) -> None:
    state = RunState.from_dict(surroundings.xcom_pull("preflight"))
    asking = replace(state, conf=RunConf(approval=True, approval_timeout_s=60))
    surroundings.xcom_push("preflight", asking.to_dict())
    metrics = {"validation:loss": 1.5}
    surroundings.xcom_push("train", {"model_artifact": MODEL, "final_metrics": metrics})
    surroundings.xcom_push("evaluate", {"job_name": "job"})

    with pytest.raises(TaskAwaitingInput):
        register().execute(surroundings.context)

    (asked,) = questions
    assert "validation:loss: 1.5" in asked.body
    assert "register_when: none" in asked.body


@pytest.mark.parametrize("condition", ["test_loss < 1", "accuracy > 0"], ids=["missed", "absent"])
def test_the_condition_of_a_shipped_model_reads_its_evaluation(
    surroundings: RegisterSurroundings, condition: str
) -> None:
    state = RunState.from_dict(surroundings.xcom_pull("preflight"))
    surroundings.xcom_push(
        "preflight", replace(state, conf=RunConf(register_when=condition)).to_dict()
    )
    surroundings.xcom_push("evaluate", {"job_name": "job", "metrics": {"test_loss": 1.25}})
    said = (
        r"test_loss is 1\.25, but" if "loss" in condition else "'accuracy', which was not measured"
    )

    with pytest.raises((AirflowSkipException, SpecError), match=said):
        register().execute(surroundings.context)


def test_nobody_is_asked_about_a_model_that_misses_its_condition(
    questions: list[Any], surroundings: RegisterSurroundings
) -> None:
    surroundings.xcom_push("evaluate", {"metrics": {"gain": 0.05}})

    with pytest.raises(AirflowSkipException, match=r"gain is 0\.05"):
        register().execute(surroundings.context)
    assert questions == []


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"chosen_options": [REJECT], "responded_by_user": EVA}, "Eva rejected the model"),
        ({"chosen_options": [REJECT], "timedout": True}, "nobody answered in time"),
        ({"chosen_options": ["Perhaps"]}, "somebody rejected the model"),
    ],
)
def test_without_a_yes_nothing_is_registered(
    surroundings: RegisterSurroundings, event: dict[str, Any], why: str
) -> None:
    with pytest.raises(AirflowSkipException, match=f"not registered: {why}; the model is at s3://"):
        register().execute_answered(surroundings.context, event)


@pytest.mark.engine
def test_a_yes_registers_the_model(
    aws_connection: RunningEngine, surroundings: RegisterSurroundings
) -> None:
    event = {"chosen_options": [APPROVE], "responded_by_user": EVA}

    result = register().resume_execution("execute_answered", {"event": event}, surroundings.context)

    assert result["model_package_arn"].startswith("arn:aws:sagemaker:")
