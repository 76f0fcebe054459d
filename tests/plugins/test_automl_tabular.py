"""The AutoML operator against a real engine: one job handed on, found again, stopped, bounded by its budget."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from tests.contract.automl import TARGET, table
from tests.plugins.conftest import TaskSurroundings, connection_json
from trainyard.errors import BudgetExceededError, JobStoppedError, RejectedRequestError, SpecError
from trainyard.runs.orphans import ThingKind
from trainyard.runs.run_tags import Owner
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.stack.aws import AwsEndpoint
from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.ledger import RunLedger, ledger_uri
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.paid_things import PaidThings
from trainyard_airflow.jobs.automl_result import runtime_ceiling
from trainyard_airflow.operators.automl_tabular import AutoMLTabularOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PRICE_PER_S = 0.922 / 3600


@pytest.fixture(scope="module")
def connection(engine: RunningEngine) -> Iterator[RunningEngine]:
    """The connection `aws_default` leads to the shared engine, for this module; its bucket holds a table."""
    key = "automl-operator/table.csv"
    engine.client("s3").put_object(Bucket=engine.bucket, Key=key, Body=table())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
        yield engine


def job(engine: RunningEngine, **changes: Any) -> dict[str, Any]:
    """Return the spec of a job of one linear candidate."""
    return {
        "train": f"s3://{engine.bucket}/automl-operator/table.csv",
        "target": TARGET,
        "mode": "ENSEMBLING",
        "algorithms": ["linear-learner"],
        "max_candidates": 1,
        **changes,
    }


def operator(spec: Any, **arguments: Any) -> AutoMLTabularOperator:
    arguments = {"task_id": "search", "deferrable": False, "poll_interval_s": 1, **arguments}
    return AutoMLTabularOperator(spec=spec, **arguments)


def surroundings() -> TaskSurroundings:
    return TaskSurroundings(run_id=f"run-{uuid.uuid4().hex[:8]}", task_id="search")


def execute(made: AutoMLTabularOperator, task: Any) -> Any:
    """Run the operator as Airflow's task runner does, past its guard against calls by hand."""
    return type(made).execute.__wrapped__(made, task.context)


def deferred(made: AutoMLTabularOperator, task: Any) -> Any:
    with pytest.raises(TaskDeferred) as raised:
        execute(made, task)
    return raised.value.trigger


async def only_event(trigger: Any) -> dict[str, Any]:
    """Return the payload of the trigger's one event, having sent the trigger through JSON."""
    _, arguments = trigger.serialize()
    revived = type(trigger)(**json.loads(json.dumps(arguments)))
    (event,) = [event async for event in revived.run()]
    return dict(event.payload)


def jobs_of(sagemaker: Any, task: Any) -> list[str]:
    """Return the AutoML jobs of this task."""
    rows = sagemaker.list_auto_ml_jobs(NameContains="search", MaxResults=100)
    return [
        row["AutoMLJobName"]
        for row in rows["AutoMLJobSummaries"]
        if {"Key": "trainyard:run", "Value": task.run_id}
        in sagemaker.list_tags(ResourceArn=row["AutoMLJobArn"])["Tags"]
    ]


def clients() -> AwsClients:
    return AwsClients(ConnectionArguments())


@dataclass
class EndedAutoML:
    """A job that has ended, and what it left."""

    task: TaskSurroundings
    result: dict[str, Any]
    log: str
    spec: dict[str, Any]


@pytest.fixture(scope="module")
def ended(connection: RunningEngine) -> EndedAutoML:
    """A deferred job that has completed. Its trial has a name as on AWS, without a hyphen after the job's name."""
    task, spec = surroundings(), job(connection, budget_usd=5.0, mode="HYPERPARAMETER_TUNING")
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        event = asyncio.run(only_event(deferred(operator(spec, deferrable=True), task)))
        result = operator(spec).execute_complete(task.context, event)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return EndedAutoML(task, json.loads(json.dumps(result)), log.getvalue(), spec)


def test_best_candidate_is_handed_on(ended):
    result, best = ended.result, ended.result["best"]

    assert (result["status"], result["ended_by"], result["is_complete"]) == (
        "Completed",
        "service",
        True,
    )
    assert result["problem_type"] == "BinaryClassification"
    assert result["objective"] == {"metric_name": "F1", "type": "Maximize"}
    assert best["value"] == best["metrics"]["Validation"]["F1"] > 0.8
    assert result["model_artifact"].endswith(f"{best['name']}/output/model.tar.gz")
    assert "sagemaker-sklearn-automl" in result["image_uri"]
    assert result["num_candidates"] == {"Completed": 1}
    assert [each["type"] for each in best["steps"]] == ["ProcessingJob", "TrainingJob"]
    assert result["explainability_uri"].endswith(best["name"])


def test_leaderboard_is_written_and_told(ended):
    uri = ended.result["leaderboard_uri"]
    assert uri.endswith(f"{ended.task.run_id}/automl/leaderboard.json")
    document = json.loads(S3Objects(clients().client("s3")).read(uri))
    (first,) = document["candidates"]
    assert first["name"] == ended.result["best"]["name"]
    (marked,) = {line for line in ended.log.splitlines() if line.startswith("*")}
    assert first["name"] in marked
    assert "1 of its 1 candidates have ended" in ended.log


def test_name_fits_the_services_32_characters(ended):
    name = ended.result["automl_job_name"]
    assert name == ended.task.xcoms["job_name"]
    assert len(name) <= 32
    assert re.fullmatch(r"plugins-tes[a-z-]*-search-[0-9a-f]{10}", name)


def test_terminal_shows_the_candidates(ended, connection):
    view = AwsEndpoint(connection.endpoint_url).job(ended.result["automl_job_name"], kind="automl")

    assert view is not None
    assert (view.status, view.objective) == ("Completed", "F1")
    assert view.metrics == {
        "candidates_ended": 1.0,
        "candidates_running": 0.0,
        "candidates": 1.0,
        "best": ended.result["best"]["value"],
    }


def test_budget_became_the_requests_time_limit(ended, sagemaker):
    described = sagemaker.describe_auto_ml_job_v2(AutoMLJobName=ended.result["automl_job_name"])
    config = described["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    limit = config["CompletionCriteria"]["MaxAutoMLJobRuntimeInSeconds"]
    assert limit == int(5.0 / (2 * PRICE_PER_S))


def test_ledger_says_what_all_its_jobs_cost(ended, connection, sagemaker):
    uri = ledger_uri(
        root=f"s3://{connection.bucket}/trainyard",
        dag_id=ended.task.dag_id,
        run_id=ended.task.run_id,
    )
    (entry,) = RunLedger(clients(), uri=uri).read().entries
    name = ended.result["automl_job_name"]
    (training,) = sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]
    billed = sagemaker.describe_training_job(TrainingJobName=training["TrainingJobName"])

    assert not training["TrainingJobName"].startswith(f"{name}-")
    processing = sagemaker.list_processing_jobs(NameContains=name)["ProcessingJobSummaries"]
    names = {training["TrainingJobName"], *(each["ProcessingJobName"] for each in processing)}
    assert {each.name for each in AutoMLCandidates(clients()).children(name)} == names
    assert (entry.kind, entry.status) == ("automl", "Completed")
    assert entry.billable_seconds == ended.result["billable_seconds"]
    assert entry.billable_seconds > billed["BillableTimeInSeconds"]  # the processing jobs, too
    assert entry.cost_usd == pytest.approx(entry.billable_seconds * PRICE_PER_S)


def test_second_start_adopts_the_completed_job(ended, sagemaker):
    again = execute(operator(ended.spec), ended.task)

    assert json.loads(json.dumps(again)) == ended.result
    assert jobs_of(sagemaker, ended.task) == [ended.result["automl_job_name"]]


def test_running_job_is_re_attached_known_to_the_janitor_and_stopped_by_a_kill(
    connection, sagemaker
):
    task, spec = surroundings(), job(connection, max_candidates=250)
    first = deferred(operator(spec, deferrable=True), task)
    second = deferred(operator(spec, deferrable=True), task)
    name = task.xcoms["job_name"]
    (found,) = [each for each in PaidThings(clients()).live() if each.name == name]
    owner = Owner.from_tags(found.tags)

    assert second.followed.job_name == first.followed.job_name == name
    assert jobs_of(sagemaker, task) == [name]
    assert found.kind is ThingKind.AUTOML
    assert owner is not None
    assert (owner.run_id, owner.task_id) == (task.run_id, "search")

    began = time.monotonic()
    asyncio.run(first.on_kill())
    event = asyncio.run(only_event(second))
    assert event["job"]["status"] == "Stopped"
    assert time.monotonic() - began < 30
    running = sagemaker.list_processing_jobs(NameContains=name, StatusEquals="InProgress")
    assert running["ProcessingJobSummaries"] == []


def test_job_that_a_person_stops_is_no_success(connection, sagemaker):
    task, spec = surroundings(), job(connection, max_candidates=250)
    trigger = deferred(operator(spec, deferrable=True), task)
    sagemaker.stop_auto_ml_job(AutoMLJobName=task.xcoms["job_name"])
    event = asyncio.run(only_event(trigger))

    with pytest.raises(JobStoppedError, match="the search was stopped"):
        operator(spec).execute_complete(task.context, event)


def test_another_deployments_job_of_the_name_is_not_taken_for_its_own(ended):
    elsewhere = {**ended.spec, "output_path": "s3://somebody-elses/output"}

    with pytest.raises(RejectedRequestError, match="another output path"):
        execute(operator(elsewhere), ended.task)


def test_wrong_spec_reports_every_fault_and_starts_nothing(connection, sagemaker):
    task = surroundings()
    spec = job(connection, objective="RMSE", validation_fraction=1.0, train="table.csv")
    with pytest.raises(SpecError) as raised:
        execute(operator(spec), task)

    told = str(raised.value)
    assert "problem_type" in told
    assert "validation_fraction" in told
    assert "is not an S3 URI" in told
    assert jobs_of(sagemaker, task) == []


def budgeted(**changes: Any) -> AutoMLJobSpec:
    places = {"train": "s3://b/t", "output_path": "s3://b/o"}
    return AutoMLJobSpec(role="r", target="t", **places, **changes)


def test_runtime_ceiling_of_the_worked_example():
    assert runtime_ceiling(budgeted(budget_usd=0.5), paid_usd=0.0) == 976


def test_runtime_ceiling_is_no_longer_than_what_was_asked_for():
    assert runtime_ceiling(budgeted(budget_usd=0.5, max_runtime_s=300), paid_usd=0.0) == 300
    assert runtime_ceiling(budgeted(max_runtime_s=300), paid_usd=0.0) is None


def test_budget_that_earlier_jobs_used_up_starts_nothing():
    with pytest.raises(
        BudgetExceededError,
        match="the rest of the AutoML job's budget is too small for a candidate",
    ) as caught:
        runtime_ceiling(budgeted(budget_usd=0.5), paid_usd=0.49)
    assert "max_time_s in autopilot_tabular" in str(caught.value)


def test_budget_without_a_known_price_is_refused():
    with pytest.raises(SpecError, match="candidate_instance_type") as caught:
        runtime_ceiling(
            budgeted(budget_usd=0.5, candidate_instance_type="ml.z9.large"), paid_usd=0.0
        )
    assert "max_time_s in autopilot_tabular" in str(caught.value)
