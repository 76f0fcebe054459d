"""What Airflow 3.2 lacks and Trainyard makes of what it has; `tests/deployment` runs a whole DAG on Airflow 3.2."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult

from tests.plugins.conftest import connection_json
from trainyard.errors import CapacityError, Finding, PlanError, SpecError, TrainingRunError
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.operators.check_rules import CheckRulesOperator
from trainyard_airflow.operators.task_state import task_memory
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.retry_policy import end_for_good, final_errors_fail
from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.task_notes import FAILURE_XCOM_KEY, note_failure
from trainyard_airflow.triggers import job

WRONG_SPEC = SpecError([Finding(where="instance_count", what="is too low", got=0)])


def run(error: Exception) -> Any:
    @final_errors_fail
    def execute() -> None:
        raise error

    return execute()


def without_store(task: Any) -> Any:
    return {key: each for key, each in task.context.items() if key != "task_state_store"}


def memory_without_store(task: Any, **ledger: str) -> Any:
    return task_memory(without_store(task), AwsClients(ConnectionArguments()), **ledger)


def paths_of(task: Any, engine: Any, **members: Any) -> RunPaths:
    return RunPaths(
        **{"bucket": engine.bucket, "prefix": "trainyard", "deployment": None, **members},
        dag_id=task.dag_id,
        run_id=task.run_id,
    )


@pytest.fixture
def without_bucket(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection names no bucket: a run's form does."""
    given = connection_json(engine, trainyard={"execution_role_arn": engine.role_arn})
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)


@pytest.mark.parametrize(
    "error", [WRONG_SPEC, PlanError([Finding(where="memory", what="is too small")])]
)
def test_an_error_that_would_come_again_fails_the_task_for_good(error: TrainingRunError) -> None:
    with pytest.raises(AirflowFailException, match=type(error).__name__) as raised:
        run(error)

    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [CapacityError("no instances"), ValueError("of a library")])
def test_other_errors_are_left_to_airflows_retries(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        run(error)

    assert raised.value is error


def test_the_report_names_the_error_behind_a_final_failure(task: Any) -> None:
    with pytest.raises(AirflowFailException) as raised:
        run(WRONG_SPEC)
    note_failure({**task.context, "exception": raised.value})

    assert task.xcoms[FAILURE_XCOM_KEY] == WRONG_SPEC.to_dict()


def test_a_subclass_of_an_operator_fails_for_good_too_and_its_own_code_sees_the_error() -> None:
    seen: list[Exception] = []

    class Shipped:
        def execute(self) -> None:
            raise WRONG_SPEC

    end_for_good(Shipped)  # type: ignore[type-var]

    class Own(Shipped):
        def execute(self) -> None:
            try:
                super().execute()
            except SpecError as error:
                seen.append(error)
                raise

    with pytest.raises(AirflowFailException):
        Own().execute()

    assert seen == [WRONG_SPEC]


class OldSupervisor:
    """Airflow's supervisor: it takes a while to report the task's state, or reports none."""

    def __init__(self, state: str | None) -> None:
        self.state = state

    async def asend(self, msg: GetTaskStates) -> TaskStatesResult:
        await asyncio.sleep(0.05)
        if self.state is None:
            raise ConnectionError("the supervisor is gone")
        return TaskStatesResult(task_states={"run": dict.fromkeys(msg.task_ids or (), self.state)})


@pytest.mark.parametrize(
    ("state", "is_stopped"),
    [("failed", True), ("success", True), ("deferred", False), (None, False)],
)
def test_a_cancelled_trigger_stops_the_job_of_an_ended_task_only(
    monkeypatch: pytest.MonkeyPatch, state: str | None, is_stopped: bool
) -> None:
    monkeypatch.setattr(job, "HAS_ON_KILL", False)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", OldSupervisor(state), raising=False)

    assert asyncio.run(cancelled_twice()) == (["stopped"] if is_stopped else [])


async def cancelled_twice() -> list[str]:
    """Cancel a trigger as Airflow 3.2 does, with each sync again; return what became of its job."""
    stops: list[str] = []

    class Trigger(job.JobTrigger):
        async def _followed_to_end(self) -> Any:
            await asyncio.Event().wait()

        async def on_kill(self) -> None:
            stops.append("stopped")

    trigger = Trigger()
    trigger.task_instance = SimpleNamespace(
        dag_id="dag", run_id="run", task_id="train", map_index=-1
    )
    running = asyncio.ensure_future(anext(trigger.run()))
    for _ in range(2):
        await asyncio.sleep(0.01)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.2)
    return stops


@pytest.mark.engine
def test_memory_without_a_store_outlives_the_process(aws_connection: Any, task: Any) -> None:
    first = memory_without_store(task)
    assert first.reported_attempt == 0
    first.note_reported(2)
    first.note_job("job-1", {"rung": 1})
    first.note_verdict(1)

    again = memory_without_store(task)

    assert (again.reported_attempt, again.verdict_attempts) == (2, {1})
    assert again.facts_of("job-1") == {"rung": 1}
    task.map_index = 3
    assert memory_without_store(task).reported_attempt == 0, "each mapped task has its own"


@pytest.mark.engine
@pytest.mark.parametrize("deployment", [None, "team-a"])
def test_the_state_of_a_run_with_default_prefix_stays_where_earlier_releases_wrote_it(
    engine: Any, task: Any, monkeypatch: pytest.MonkeyPatch, deployment: str | None
) -> None:
    given = connection_json(engine, deployment=deployment)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    memory_without_store(task).note_reported(2)

    of_run = paths_of(task, engine, deployment=deployment).ledger
    of_all_runs = f"s3://{engine.bucket}/of-all-runs/ledger"

    for each in (of_run, of_all_runs):
        assert memory_without_store(task, ledger_uri=each).reported_attempt == 2


@pytest.mark.engine
@pytest.mark.usefixtures("without_bucket")
def test_a_run_whose_bucket_comes_from_the_form_has_its_state_there(
    engine: Any, s3: Any, task: Any, script: Any
) -> None:
    paths = paths_of(task, engine, prefix="ml")
    train = TrainingJobOperator(task_id="train", spec=script(""), ledger_uri=paths.ledger)
    train.job_run(without_store(task)).memory.note_reported(2)
    task.task_id = "watch_rules"
    watch = CheckRulesOperator(
        task_id="watch_rules", watched_task_id="train", ledger_uri=paths.ledger
    )
    failed = {"error": TriggerFailureReason.TRIGGER_FAILURE}

    with pytest.raises(AirflowRescheduleException):
        watch.resume_execution(TRIGGER_FAIL_REPR, failed, without_store(task))

    folder = f"{paths.run.removeprefix(f's3://{engine.bucket}/')}/task-state/"
    found = s3.list_objects_v2(Bucket=engine.bucket, Prefix=folder)["Contents"]
    names = {each["Key"].removeprefix(folder) for each in found}
    assert names == {"train.json", "watch_rules.json"}


@pytest.mark.engine
@pytest.mark.usefixtures("without_bucket")
def test_a_task_without_any_place_for_its_state_says_that_the_connection_needs_a_bucket(
    task: Any,
) -> None:
    with pytest.raises(SpecError, match=r"(?s)Airflow 3\.2 cannot store.*set trainyard\.bucket"):
        memory_without_store(task)


def test_training_and_watch_of_a_run_have_their_state_at_the_same_place() -> None:
    dag = training_pipeline(dag_id="state_of_a_run")

    train, watch = dag.get_task("train"), dag.get_task("watch_rules")

    assert train.ledger_uri == watch.ledger_uri
    assert "ledger_uri" in watch.template_fields
