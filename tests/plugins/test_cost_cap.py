"""The cap of a run's cost holds over whole lives, and what it stops leaves a model."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.plugins.capped_lives import live_a_run, table
from tests.plugins.test_capacity import on_ladder
from tests.plugins.test_training_job_operator import deferred, first_event, operator
from trainyard.errors import BudgetExceededError, RuleViolatedError, SpecError
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard_airflow.jobs.rule_retry import checkpoints_in
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator

USD_PER_S = 0.115 / 3600
"""Of one ml.m5.large."""
CAP_USD = USD_PER_S * (61 + 120)
"""USD for 61 s of one instance and the shortest reserve for its stop."""

# Saves a model when it is asked to stop, if it shall.
STOPPED = """
import json, os, pathlib, signal, sys, time
def stop(*_):
    if json.loads(os.environ["SM_HPS"])["saves"]:
        pathlib.Path("/opt/ml/model/weights.bin").write_bytes(b"so far")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
step = pathlib.Path("/opt/ml/checkpoints/step-00000007")
step.mkdir(parents=True, exist_ok=True)
(step / "manifest.json").write_text("{}")
print("trainyard step=7", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("num_runs", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_runs_keep_their_cap_and_what_it_stopped_left_a_model(num_runs: int) -> None:
    outcomes = [live_a_run(seed) for seed in range(num_runs)]

    over = [each for each in outcomes if each.billed_usd > each.cap_usd]
    assert not over, table(outcomes)
    stopped = [each for each in outcomes if each.end == "stopped by its cap"]
    assert len(stopped) > num_runs / 5
    assert all(each.has_model for each in stopped)
    assert {"completed", "refused", "no money"} <= {each.end for each in outcomes}


@pytest.mark.engine
def test_whole_checkpoints_are_found_by_their_step(engine: Any, s3: Any) -> None:
    place = "capped/checkpoints/"
    names = ("step-00000007/manifest.json", "checkpoint-15/files.json", "checkpoint-20/model.bin")
    for name in names:
        s3.put_object(Bucket=engine.bucket, Key=place + name, Body=b"{}")

    found = checkpoints_in(s3, f"s3://{engine.bucket}/{place}")

    assert set(found) == {7, 15}
    assert found[15] == f"s3://{engine.bucket}/{place}checkpoint-15"


@pytest.fixture
def spec(aws_connection: Any, script: Any, task: Any) -> Any:
    """Return a function that makes the spec of a capped job."""

    def make(**members: Any) -> dict[str, Any]:
        given = {
            "hyperparameters": {"saves": True},
            "checkpoint_s3_uri": f"s3://{aws_connection.bucket}/capped/{task.run_id}",
            "forward_sigterm": True,
            "max_cost_usd": CAP_USD,
            "stop_reserve_s": 120,
        }
        return script(STOPPED, **{**given, **members})

    return make


def stopped_job(made: Any, task: Any, *, cause: StopCause) -> None:
    """Create the task's first job, and stop it as its follower would, once it has saved a checkpoint."""
    run = made.job_run(task.context)
    name = run.jobs.name_of(1)
    run.service.create(run.render(name, place=run.job_type.place([]))[0])
    job = run.service.describe(name)
    while not checkpoints_in(run.jobs.clients.client("s3"), job.checkpoint_s3_uri):
        time.sleep(0.1)
    run.service.add_tag(job.arn, cause.tag)
    run.service.stop(name)
    while not run.service.describe(name).is_terminal:
        time.sleep(0.1)


@pytest.mark.engine
def test_start_after_a_stop_by_the_cap_returns_the_model_so_far(spec: Any, task: Any) -> None:
    made = WatchedTrainingJobOperator(task_id="train", spec=spec(), deferrable=False)
    stopped_job(made, task, cause=StopCause.BUDGET)

    result = made.execute(task.context)

    assert (result["attempt"], result["status"], result["ended_by"]) == (1, "Stopped", "cost cap")
    assert result["cap_stop"]["step"] == 7
    assert result["cap_stop"]["max_cost_usd"] == CAP_USD
    assert result["cap_stop"]["cost_usd"] == pytest.approx(result["billable_seconds"] * USD_PER_S)
    assert result["max_run_s"] == 61


@pytest.mark.engine
@pytest.mark.parametrize("saves", [True, False], ids=["model", "no model"])
def test_training_with_idle_accelerators_hands_on_its_model_so_far(
    spec: Any, task: Any, saves: bool
) -> None:
    given = spec(max_cost_usd=None, hyperparameters={"saves": saves})
    made = WatchedTrainingJobOperator(task_id="train", spec=given, deferrable=False)
    stopped_job(made, task, cause=StopCause.IDLE)

    if not saves:
        run = made.job_run(task.context)
        job = run.service.describe(run.jobs.name_of(1))
        with pytest.raises(RuleViolatedError, match=r"accelerators were idle.*no model"):
            run.ended(job, {"attempt": 1})
        return
    result = made.execute(task.context)

    assert (result["attempt"], result["ended_by"]) == (1, "idle accelerators")
    assert (result["idle_stop"]["step"], result.get("cap_stop")) == (7, None)


@pytest.mark.engine
def test_nothing_is_created_whose_price_is_unknown_or_that_the_cap_does_not_pay(
    spec: Any, task: Any
) -> None:
    for given, error in (
        ({"instance_type": "ml.c4.xlarge"}, SpecError),
        ({"max_cost_usd": 0.001}, BudgetExceededError),
    ):
        made = operator(spec(**given))
        with pytest.raises(error, match="max_cost_usd"):
            made.execute(task.context)
        assert made.task_jobs(task.context).of_attempt(1) is None


@pytest.mark.engine
@pytest.mark.parametrize(
    ("rung", "wait_s"), [({}, 2 * 3600), ({"max_wait_s": 900}, 3600 + 900)], ids=["free", "bounded"]
)
def test_cap_shortens_the_run_and_leaves_the_wait_for_spot(
    spec: Any, task: Any, rung: dict[str, Any], wait_s: int
) -> None:
    run = operator(on_ladder(spec(max_run=3600), rung)).job_run(task.context)

    request, _ = run.render("job", place=run.job_type.place([]))

    limits = {"MaxRuntimeInSeconds": 61, "MaxWaitTimeInSeconds": wait_s}
    assert request["StoppingCondition"] == limits


@pytest.mark.slow
@pytest.mark.engine
def test_follower_stops_a_job_at_its_cap_without_a_model_and_the_task_says_so(
    spec: Any, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = operator(spec(hyperparameters={"saves": False}), deferrable=True)
    trigger = deferred(made, task).trigger
    assert trigger.arguments["patience"]["max_billed_s"] == pytest.approx(61)
    trigger.arguments["patience"]["max_billed_s"] = 15.0

    with caplog.at_level("INFO"):
        event = first_event(trigger)

    assert 5 <= caplog.text.count("cost so far at most $") <= 10
    with pytest.raises(
        BudgetExceededError,
        match="cost cap stopped the training after step 7, and the job left no model",
    ) as caught:
        made.execute_complete(task.context, event)

    assert "step-00000007" in str(caught.value)
    job = made.task_jobs(task.context).of_attempt(1)
    assert made.task_jobs(task.context).service.stop_cause(job.arn) is StopCause.BUDGET
    assert job.billable_seconds * USD_PER_S <= CAP_USD


@pytest.mark.slow
@pytest.mark.engine
def test_job_that_nobody_follows_is_ended_by_the_service_and_its_model_is_the_result(
    spec: Any, task: Any
) -> None:
    made = operator(spec(), deferrable=True)
    deferred(made, task)  # its triggerer never comes
    jobs = made.task_jobs(task.context)
    while not jobs.of_attempt(1).is_terminal:
        time.sleep(0.5)

    result = operator(spec()).execute(task.context)

    assert result["secondary_status"] == "MaxRuntimeExceeded"
    assert (result["attempt"], result["ended_by"]) == (1, "cost cap")
    assert result["billable_seconds"] * USD_PER_S <= CAP_USD
