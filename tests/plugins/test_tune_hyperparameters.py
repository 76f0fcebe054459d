"""The tuning operator against a real engine: one search handed on, found again, stopped, ended by its ceiling."""

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

from sagemaker_engine.testing import faults
from tests.limits import EVENT_LIMIT_S
from tests.plugins.conftest import IMAGE, TaskSurroundings, connection_json
from tests.plugins.lossy_relay import losing_answers
from trainyard.errors import (
    BudgetExceededError,
    JobStoppedError,
    ScriptError,
    SpecError,
)
from trainyard.retry_table import retry_rule
from trainyard.runs.orphans import ThingKind
from trainyard.runs.run_tags import Owner
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.tuning.result import TuningResult
from trainyard.tuning.trials import Trial, from_parquet
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.ledger import RunLedger, ledger_uri
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.paid_things import PaidThings
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator
from trainyard_airflow.tasks.shared.leftover_jobs import stop_leftover_jobs
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.triggers.search import SearchLook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TRIAL = """
import argparse, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--color")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--fails_for", default="nobody")
options, _ = parser.parse_known_args()
if options.fails_for in {options.color, "all"}:
    raise ValueError(f"no {options.color} here, key-very-secret")
print(f"loss={(options.rate - 3) ** 2}", flush=True)
time.sleep(options.pause)
"""
WAITS = 600.0
RATE = {"type": "continuous", "min_value": 1, "max_value": 5}
CREATE = "CreateHyperParameterTuningJob"
PRICE_PER_S = 0.115 / 3600


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the trials' script."""
    folder = tmp_path_factory.mktemp("trial")
    (folder / "trial.py").write_text(TRIAL)
    return str(folder)


@pytest.fixture(scope="module")
def connection(engine: RunningEngine) -> Iterator[RunningEngine]:
    """The connection `aws_default` leads to the shared engine, for this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
        yield engine


def search(code: str, **changes: Any) -> dict[str, Any]:
    """Return a search of four trials, two at a time; `static` are further static hyperparameters."""
    static = {"api_key": "key-very-secret", **changes.pop("static", {})}
    training = {
        "entry_point": "trial.py",
        "source_dir": code,
        "instance_type": "ml.m5.large",
        "image_uri": IMAGE,
        "max_run": 600,
        "hyperparameters": static,
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([-0-9.e]+)"}],
        **changes.pop("training", {}),
    }
    return {
        "training": training,
        "hyperparameter_ranges": {"rate": RATE, "color": ["red", "green"]},
        "objective_metric_name": "loss",
        "objective_type": "Minimize",
        "strategy": "Random",
        "random_seed": 7,
        "max_jobs": 4,
        "max_parallel_jobs": 2,
        **changes,
    }


def operator(spec: Any, **arguments: Any) -> TuneHyperparametersOperator:
    arguments = {"task_id": "tune", "deferrable": False, "poll_interval_s": 1, **arguments}
    return TuneHyperparametersOperator(spec=spec, **arguments)


def surroundings() -> TaskSurroundings:
    return TaskSurroundings(run_id=f"run-{uuid.uuid4().hex[:8]}", task_id="tune")


def execute(made: TuneHyperparametersOperator, task: Any) -> Any:
    """Run the operator as Airflow's task runner does, past its guard against calls by hand."""
    return type(made).execute.__wrapped__(made, task.context)


def deferred(made: TuneHyperparametersOperator, task: Any) -> Any:
    with pytest.raises(TaskDeferred) as raised:
        execute(made, task)
    return raised.value.trigger


def deferred_by(url: str, made: Any, task: Any, engine: RunningEngine) -> Any:
    """Return the trigger of a task that reached SageMaker by this address."""
    connection = json.loads(connection_json(engine))
    connection["extra"]["service_config"] = {"sagemaker": {"endpoint_url": url}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        return deferred(made, task)


async def only_event(trigger: Any) -> dict[str, Any]:
    """Return the payload of the trigger's one event, having sent the trigger through JSON."""
    _, arguments = trigger.serialize()
    revived = type(trigger)(**json.loads(json.dumps(arguments)))
    (event,) = [event async for event in revived.run()]
    return dict(event.payload)


def searches(sagemaker: Any, task: Any) -> list[str]:
    """Return the searches of this task."""
    rows = sagemaker.list_hyper_parameter_tuning_jobs(NameContains="tune", MaxResults=100)
    return [
        row["HyperParameterTuningJobName"]
        for row in rows["HyperParameterTuningJobSummaries"]
        if {"Key": "trainyard:run", "Value": task.run_id}
        in sagemaker.list_tags(ResourceArn=row["HyperParameterTuningJobArn"])["Tags"]
    ]


def describe(sagemaker: Any, task: Any) -> dict[str, Any]:
    name = task.xcoms["job_name"]
    return dict(sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name))


def await_billed_trial(sagemaker: Any, task: Any, *, seconds: float) -> None:
    """Wait until a trial has trained for so long: its bill has whole seconds."""
    deadline = time.monotonic() + EVENT_LIMIT_S
    while True:
        listed = sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=task.xcoms["job_name"]
        )["TrainingJobSummaries"]
        starts = [each["TrainingStartTime"] for each in listed if "TrainingStartTime" in each]
        if starts and time.time() - min(starts).timestamp() > seconds:
            return
        assert time.monotonic() < deadline, f"no trial trained for {seconds} s"
        time.sleep(0.2)


def clients() -> AwsClients:
    return AwsClients(ConnectionArguments())


@dataclass
class EndedSearch:
    """A search that has ended, and what it left."""

    task: TaskSurroundings
    result: dict[str, Any]
    log: str
    trials: list[Trial]
    spec: dict[str, Any]


@pytest.fixture(scope="module")
def ended(connection: RunningEngine, code: str) -> EndedSearch:
    """A deferred search of four trials, of which the green ones fail, that has ended by itself.

    Nobody heard of its Create, and the service was too busy to list trials for a while.
    """
    task, spec = surroundings(), search(code, static={"fails_for": "green"}, budget_usd=1.0)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with losing_answers(connection.endpoint_url, operation=CREATE, status=None) as url:
            trigger = deferred_by(url, operator(spec, deferrable=True), task, connection)
        busy = {"what": "throttle", "operation": "ListTrainingJobsForHyper*", "count": 3}
        with faults(connection.endpoint_url, busy):
            event = asyncio.run(only_event(trigger))
        result = operator(spec).execute_complete(task.context, event)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    content = S3Objects(clients().client("s3")).read(result["trials_uri"])
    return EndedSearch(task, result, log.getvalue(), from_parquet(content), spec)


def test_winner_is_handed_on(ended):
    result = TuningResult.from_dict(json.loads(json.dumps(ended.result)))
    best = result.best

    assert (result.status, result.ended_by, result.is_complete) == ("Completed", "service", True)
    assert result.objective.metric_name == "loss"
    assert best.value == pytest.approx((float(best.tuned_values["rate"]) - 3) ** 2)
    assert best.tuned_values["color"] == "red"
    assert best.hyperparameters == {**best.tuned_hyperparameters, "fails_for": "green"}
    assert best.model_artifacts is not None
    assert best.model_artifacts.endswith(f"{best.training_job_name}/output/model.tar.gz")
    assert result.num_trials["Failed"] > 0
    assert sum(result.num_trials.values()) == 4
    assert result.budget_usd == 1.0
    assert result.estimated_cost_usd == pytest.approx(4 * 600 * PRICE_PER_S)
    assert result.cost_usd == pytest.approx(result.billable_seconds * PRICE_PER_S)


def test_all_trials_are_in_the_table(ended):
    assert len(ended.trials) == 4
    assert ended.result["trials_uri"].endswith(f"{ended.task.run_id}/tuning/trials.parquet")
    by_name = {each.training_job_name: each for each in ended.trials}
    best = by_name[ended.result["best"]["training_job_name"]]
    assert best.objective == min(t.objective for t in ended.trials if t.objective is not None)
    for each in ended.trials:
        is_green = each.tuned_hyperparameters["color"] == "green"
        assert (each.status == "Failed") is is_green
        assert (each.objective is None) is is_green
        assert ("no green here" in (each.failure_reason or "")) is is_green
    assert not any(each.is_early_stopped for each in ended.trials)


def test_name_fits_the_services_32_characters(ended):
    assert len(ended.result["tuning_job_name"]) <= 32
    assert ended.result["tuning_job_name"] == ended.task.xcoms["job_name"]
    assert "job_links" not in ended.task.xcoms, "AWS's console has no job of the engine"
    assert re.fullmatch(r"plugins-test-tune-[0-9a-f]{10}", ended.result["tuning_job_name"])


def test_log_tells_the_trials_and_no_secret(ended):
    last = ended.log.rpartition(", ended by ")[2]

    assert "4 trials have ended, 0 run, of at most 4; $" in ended.log
    (marked,) = [line for line in last.splitlines() if line.startswith("*")]
    assert ended.result["best"]["training_job_name"] in marked
    assert "very-secret" not in ended.log
    assert "very-secret" not in json.dumps(ended.result)
    assert "very-secret" not in repr(ended.trials)


def test_ledger_says_what_the_search_cost(ended, connection):
    uri = ledger_uri(
        root=f"s3://{connection.bucket}/trainyard",
        dag_id=ended.task.dag_id,
        run_id=ended.task.run_id,
    )
    (entry,) = RunLedger(clients(), uri=uri).read().entries

    assert (entry.kind, entry.status) == ("tuning", "Completed")
    assert entry.billable_seconds == ended.result["billable_seconds"]
    assert entry.cost_usd == pytest.approx(ended.result["cost_usd"])


def test_search_whose_cost_nobody_tells_is_not_settled_in_the_ledger(connection, code):
    task = surroundings()
    run = operator(search(code)).job_run(task.context)
    run.ledger.intend("gone")
    snapshot = JobSnapshot(kind="tuning", name="gone", arn="arn", status="Completed")
    run.ledger.settle(snapshot, run.job_type.billed)

    root = f"s3://{connection.bucket}/trainyard"
    uri = ledger_uri(root=root, dag_id=task.dag_id, run_id=task.run_id)
    (entry,) = RunLedger(clients(), uri=uri).read().entries
    assert not entry.is_settled


def test_busy_service_and_a_create_that_nobody_heard_of_cost_no_second_search(ended, sagemaker):
    assert ended.log.count("ThrottlingException") >= 1
    assert "retry in 1 s" in ended.log
    assert searches(sagemaker, ended.task) == [ended.result["tuning_job_name"]]


def test_second_start_adopts_the_completed_search(ended, sagemaker):
    again = execute(operator(ended.spec), ended.task)

    assert again == ended.result
    assert len(searches(sagemaker, ended.task)) == 1


@pytest.mark.slow
def test_start_while_the_search_runs_re_attaches_and_a_killed_one_is_followed_by_another(
    connection, code, sagemaker
):
    task, spec = surroundings(), search(code, static={"pause": WAITS}, training={"max_run": 900})
    first = deferred(operator(spec, deferrable=True), task)
    second = deferred(operator(spec, deferrable=True), task)

    assert second.followed.job_name == first.followed.job_name
    assert len(searches(sagemaker, task)) == 1

    await_billed_trial(sagemaker, task, seconds=2)
    asyncio.run(first.on_kill())
    assert describe(sagemaker, task)["HyperParameterTuningJobStatus"] in {"Stopping", "Stopped"}
    event = asyncio.run(only_event(second))
    assert event["job"]["status"] == "Stopped"
    assert describe(sagemaker, task)["TrainingJobStatusCounters"]["InProgress"] == 0

    quick = search(code, static={"pause": 0.0}, max_jobs=1, max_parallel_jobs=1, budget_usd=1.0)
    with pytest.raises(TaskDeferred) as raised:
        operator(quick, deferrable=True).execute_complete(task.context, event)
    third = raised.value.trigger
    left_usd = third.followed.patience.ceiling.budget_usd
    assert 0.99 < left_usd < 1.0
    result = operator(quick).execute_complete(task.context, asyncio.run(only_event(third)))
    assert result["status"] == "Completed"
    assert result["earlier_cost_usd"] == pytest.approx(1.0 - left_usd)
    assert result["tuning_job_name"] != first.followed.job_name
    assert re.search(r"-a2-[0-9a-f]{10}$", result["tuning_job_name"])
    assert len(result["tuning_job_name"]) <= 32


def test_search_that_the_report_finds_left_running_is_stopped_and_fails_its_task(
    connection, code, sagemaker
):
    task, spec = surroundings(), search(code, static={"pause": WAITS}, training={"max_run": 900})
    trigger = deferred(operator(spec, deferrable=True), task)
    paths = RunPaths(
        bucket=connection.bucket, prefix="trainyard", dag_id=task.dag_id, run_id=task.run_id
    )
    stopped = stop_leftover_jobs(clients(), paths, task_ids=["tune"])
    event = asyncio.run(only_event(trigger))

    assert stopped == [task.xcoms["job_name"]]
    with pytest.raises(JobStoppedError, match="the search was stopped"):
        operator(spec).execute_complete(task.context, event)
    assert describe(sagemaker, task)["TrainingJobStatusCounters"]["InProgress"] == 0


def test_orphan_is_known_to_the_janitor_by_its_owner_and_stopped(connection, code, sagemaker):
    task, spec = surroundings(), search(code, static={"pause": WAITS}, max_parallel_jobs=1)
    deferred(operator(spec, deferrable=True), task)
    things = PaidThings(clients())
    (found,) = [each for each in things.live() if each.name == task.xcoms["job_name"]]
    owner = Owner.from_tags(found.tags)

    assert found.kind is ThingKind.TUNING
    assert owner is not None
    assert (owner.run_id, owner.task_id) == (task.run_id, "tune")

    things.stop(found)
    assert describe(sagemaker, task)["HyperParameterTuningJobStatus"] in {"Stopping", "Stopped"}


def test_budget_ends_the_search_and_the_best_so_far_is_handed_on(
    connection, code, sagemaker, caplog
):
    task = surroundings()
    spec = search(
        code,
        static={"pause": 6.0},
        training={"max_run": 60},
        max_jobs=100,
        max_parallel_jobs=2,  # however slow the machine, the first ends within its half of the budget
        budget_usd=61 * PRICE_PER_S,
    )
    trigger = deferred(operator(spec, deferrable=True), task)
    name = trigger.followed.job_name
    with caplog.at_level(logging.INFO):
        asyncio.run(only_event(trigger))  # the worker that would have been told is lost
    result = TuningResult.from_dict(execute(operator(spec), task))

    assert (result.status, result.ended_by, result.is_complete) == ("Stopped", "budget", False)
    assert len(searches(sagemaker, task)) == 1
    trials = from_parquet(S3Objects(clients().client("s3")).read(result.trials_uri))
    values = [each.objective for each in trials if each.objective is not None]
    assert result.best.value == min(values)
    assert sum(result.num_trials.values()) == len(trials) < 100
    # The trials that run at the stop end some seconds later, at their own limit at the latest.
    most = spec["budget_usd"] + 2 * 60 * PRICE_PER_S
    assert 0.5 * spec["budget_usd"] < (result.cost_usd or 0.0) < most
    tables = [each for each in caplog.messages if each.startswith(f"Search {name}: ")]
    assert len(tables) == len(set(tables)) > 2


def test_a_cost_cap_begins_no_trials_that_its_time_limit_would_cut(connection, code, sagemaker):
    task = surroundings()
    spec = search(
        code,
        static={"pause": WAITS},
        max_jobs=100,
        max_cost_usd=2 * 720 * PRICE_PER_S,
        stop_reserve_s=120,
    )
    look = SearchLook(deferred(operator(spec, deferrable=True), task).followed)
    began_at = time.time() - 2000
    ended = Trial(
        training_job_name="ended",
        status="Completed",
        objective=1.0,
        started_at=began_at,
        ended_at=began_at + 1000,
    )

    async def poll() -> None:
        async with look.clients:
            snapshot = await look.now()
            look.trials["ended"] = ended
            await look.give_up_on(snapshot)

    asyncio.run(poll())
    found = describe(sagemaker, task)
    assert found["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxRuntimeInSeconds"] == 600
    assert found["HyperParameterTuningJobStatus"] in {"Stopping", "Stopped"}


@pytest.mark.slow
def test_search_whose_trials_all_fail_raises_their_cause_and_is_not_repeated(
    connection, code, sagemaker
):
    task, spec = surroundings(), search(code, static={"fails_for": "all"}, max_jobs=2)
    with pytest.raises(ScriptError, match="here, \\*\\*\\*") as raised:
        execute(operator(spec), task)

    assert "key-very-secret" not in str(raised.value)
    rule = retry_rule(raised.value)
    assert rule is not None
    assert not rule.retry
    assert len(searches(sagemaker, task)) == 1


def test_budget_below_one_trial_starts_nothing(connection, code, sagemaker):
    task, spec = surroundings(), search(code, budget_usd=599 * PRICE_PER_S)
    with pytest.raises(
        BudgetExceededError,
        match="a single trial could cost more than the rest of the search's budget",
    ):
        execute(operator(spec), task)

    assert searches(sagemaker, task) == []


def test_wrong_spec_reports_every_fault_and_starts_nothing(connection, code, sagemaker):
    task = surroundings()
    spec = search(code, max_job=3, objective_metric_name="los", training={"max_run": "soon"})
    with pytest.raises(SpecError) as raised:
        execute(operator(spec), task)

    assert "did you mean 'max_jobs'" in str(raised.value)
    assert "spec.training.max_run" in str(raised.value)
    assert searches(sagemaker, task) == []
