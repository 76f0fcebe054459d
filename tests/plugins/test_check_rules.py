"""A training watched by rules beside it, on a real engine: stopped with a verdict, warned of, left alone."""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import time
import uuid
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferralError, TaskDeferred
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult

from sagemaker_engine.testing import faults
from tests.limits import EVENT_LIMIT_S
from tests.plugins.conftest import TaskSurroundings, UnreadableStore
from tests.plugins.test_handover import TRY
from trainyard.errors import ContractError, RuleViolatedError, SpecError
from trainyard.rules.rule import RuleAction
from trainyard.rules.rule_retry import RuleRetry, read_retry
from trainyard.rules.watch_plan import WatchPlan
from trainyard.sagemaker_api.request_parts import place_variables
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.jobs.rule_retry import COPIES_AT_ONCE, EarlierStop, change_request
from trainyard_airflow.operators.check_rules import CheckRulesOperator
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator
from trainyard_airflow.triggers.rule_findings import document_uri
from trainyard_airflow.triggers.rules import RulesTrigger

if TYPE_CHECKING:
    from tests.conftest import RunningEngine
    from trainyard.runs.notifier import Notifier

pytestmark = pytest.mark.engine

SCRIPTS = Path(__file__).resolve().parents[2] / "training_scripts"
SHIPPING = (
    "__init__",
    "errors",
    "s3_prefix",
    *(f"statistics/{name}" for name in ("__init__", "lines", "parts", "shipping")),
)
"""What of the trainer puts statistics to S3."""

# One rank: a step each tenth of a second, shipped as the trainer does, a checkpoint at step 2, NaN from `bad` on.
SCRIPT = """
import json, os, pathlib, signal, sys, time
from trainyard_watch.s3_prefix import S3Prefix
from trainyard_watch.statistics.lines import line_of
from trainyard_watch.statistics.parts import PartWriter
from trainyard_watch.statistics.shipping import STATISTICS_VARIABLE, Shipper, newest_attempt_in
hp = json.loads(os.environ["SM_HPS"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
root, folder = pathlib.Path("/opt/ml/checkpoints"), pathlib.Path("/opt/ml/output/statistics")
s3 = S3Prefix(os.environ[STATISTICS_VARIABLE])
attempt = 1 + newest_attempt_in(s3)
header = {"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 1, "attempt": attempt,
          "resumed_at": 0, "time": time.time(), "tensors": {}}
writer = PartWriter(folder, header=header, marks_end=True)
shipper = Shipper(folder=folder, s3=s3, attempt=attempt, host=os.environ["SM_CURRENT_HOST"])
shipper.start()
try:
    for step in range(1, hp["last"] + 1):
        if step == 2:
            (root / "step-00000002").mkdir(exist_ok=True)
            (root / "step-00000002" / "manifest.json").write_text("{}")
        is_bad = step >= hp["bad"] and hp.get("learning_rate", 1) > 0.01
        writer.write(line_of({"kind": "step", "step": step, "time": time.time(),
                              "loss": float("nan") if is_bad else 5.0 / step,
                              "learning_rate": hp.get("learning_rate", 0.001)}))
        if is_bad and hp.get("guard"):
            pathlib.Path("/opt/ml/output/failure").write_text(
                f"NonFiniteError: Training diverged: in step {step} (samples 0 to 1 of the run's order) the loss is nan"
            )
            sys.exit(1)
        time.sleep(0.1)
finally:
    writer.close()
    shipper.close()
"""
OURS = {"model": "gpt", "precision": "bf16"}
"""Conf of a script that is known to skip no steps."""
PLAN = WatchPlan(rules=("NonFinite", "LRSanity"), conf=OURS, poll_interval_s=0.3)


@pytest.fixture
def trained(aws_connection: RunningEngine, script: Any, task: TaskSurroundings) -> Any:
    """Return a function that starts the job of the task and returns the operator that would have."""

    def start(
        *, watch: WatchPlan | None = PLAN, **hyperparameters: Any
    ) -> WatchedTrainingJobOperator:
        spec = script(
            SCRIPT,
            hyperparameters={"bad": 10**6, "last": 600, **hyperparameters},
            checkpoint_s3_uri=f"s3://{aws_connection.bucket}/watched/{uuid.uuid4().hex}",
        )
        for name in SHIPPING:
            part = Path(spec["source_dir"], "trainyard_watch", f"{name}.py")
            part.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS / "trainyard_watch" / f"{name}.py", part)
        made = WatchedTrainingJobOperator(task_id="train", spec=spec, watch=watch, deferrable=False)
        name = made.task_jobs(task.context).name_of(1)
        made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])
        return made

    return start


def rules_trigger(
    name: str,
    plan: WatchPlan = PLAN,
    *,
    absent_s: float = 60.0,
    notifier: Notifier | None = None,
    watched_task: dict[str, str] | None = None,
) -> RulesTrigger:
    """Return a trigger that watches a job."""
    return RulesTrigger(
        job_name=name,
        absent_s=absent_s,
        plan=plan.to_dict(),
        connection=ConnectionArguments().to_dict(),
        deferred_at=0.0,
        notifier=notifier.to_dict() if notifier else None,
        watched_task=watched_task,
    )


def watched(name: str, plan: WatchPlan = PLAN, **arguments: Any) -> dict[str, Any]:
    """Return the one event of a trigger that watches a job."""
    return event_of(rules_trigger(name, plan, **arguments))


def event_of(trigger: RulesTrigger) -> dict[str, Any]:
    """Return the one event of a trigger."""

    async def events() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    return dict(event)


def until_ended(service: Any, name: str) -> None:
    until = time.monotonic() + EVENT_LIMIT_S
    while not service.describe(name).is_terminal:
        assert time.monotonic() < until, f"{name} did not end"
        time.sleep(0.1)


def first_of(train: WatchedTrainingJobOperator, task: TaskSurroundings) -> str:
    """Return the name of the task's first job."""
    return train.task_jobs(task.context).name_of(1)


def test_nan_is_stopped_within_two_seconds_and_is_a_result(trained: Any, task: Any) -> None:
    train = trained(bad=12)
    name = first_of(train, task)

    event = watched(name)

    stop = event["watched"]["stopped_by"]
    assert (stop["rule"], stop["step"], stop["action"]) == ("NonFinite", 12, "stop")
    stopping = train.clients.client("sagemaker").describe_training_job(TrainingJobName=name)
    asked_at = next(
        each["StartTime"].timestamp()
        for each in stopping["SecondaryStatusTransitions"]
        if each["Status"] == "Stopping"
    )
    assert 0 < asked_at - stop["time"] < 2.0
    result = train.execute(task.context)
    assert result["ended_by"] == "rule"
    assert result["verdict"] == {
        "rule": "NonFinite",
        "step": 12,
        "action": "stop",
        "evidence": "the loss is nan",
        "last_checkpoint": f"{train.spec['checkpoint_s3_uri']}/step-00000002",
        "rules_uri": event["watched"]["rules_uri"],
    }
    tags = train.task_jobs(task.context).service.tags(
        train.task_jobs(task.context).service.describe(name).arn
    )
    assert {"Key": "trainyard:stopped-by-rule", "Value": "NonFinite@12"} in tags


@pytest.mark.slow
def test_cleared_task_goes_on_from_the_checkpoint_after_the_verdict(
    trained: Any, task: Any
) -> None:
    train = trained(bad=4)
    watched(first_of(train, task))
    assert train.execute(task.context)["attempt"] == 1
    again = WatchedTrainingJobOperator(
        task_id="train",
        spec={**train.spec, "hyperparameters": {"bad": 10**6, "last": 3}},
        watch=PLAN,
        deferrable=False,
    )

    result = again.execute(task.context)

    assert (result["attempt"], result["status"]) == (2, "Completed")
    assert "verdict" not in result


@pytest.mark.slow
def test_a_rule_whose_action_is_to_fail_fails_the_task_by_its_name(trained: Any, task: Any) -> None:
    plan = WatchPlan(
        rules=({"rule": "NonFinite", "action": "fail"},), conf=OURS, poll_interval_s=0.3
    )
    train = trained(watch=plan, bad=4)
    watched(first_of(train, task), plan)

    with pytest.raises(RuleViolatedError, match="rule NonFinite ended the training at step 4"):
        train.execute(task.context)


@pytest.mark.slow
def test_a_warning_stops_nothing_and_is_in_the_document(trained: Any, task: Any) -> None:
    plan = WatchPlan(rules=("NonFinite",), conf=OURS, on_error=RuleAction.WARN, poll_interval_s=0.3)
    train = trained(watch=plan, bad=4, last=12)
    name = first_of(train, task)

    event = watched(name, plan)

    assert event["watched"]["job_status"] == "Completed"
    assert event["watched"]["stopped_by"] is None
    assert [each["step"] for each in event["watched"]["issues"]] == [4]
    assert "verdict" not in train.execute(task.context)
    s3 = train.clients.client("s3")
    bucket, _, key = (
        document_uri(train.task_jobs(task.context).service.describe(name))
        .removeprefix("s3://")
        .partition("/")
    )
    document = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    assert document["verdicts"][0]["status"] == "IssuesFound"


def test_nan_that_the_script_itself_ends_is_the_same_verdict(trained: Any, task: Any) -> None:
    train = trained(bad=30, guard=True)  # after the task has begun to wait for the job

    result = train.execute(task.context)

    assert result["status"] == "Failed"
    assert result["ended_by"] == "rule"
    assert (result["verdict"]["rule"], result["verdict"]["step"]) == ("NonFinite", 30)
    assert result["verdict"]["evidence"] == "the loss is nan, reported by the script"


@pytest.mark.slow
def test_retry_goes_on_before_the_bad_step_with_a_lower_learning_rate(
    trained: Any, task: Any
) -> None:
    on_stop = {"action": "retry_with_lower_learning_rate", "factor": 0.1, "rollback_steps": 2}
    conf = {"model": "mlp", "learning_rate": 0.05, "warmup_steps": 0, "max_steps": 20}
    conf |= {"min_learning_rate_ratio": 1.0, "on_rule_stop": on_stop}
    plan = WatchPlan(conf=conf, on_stop=on_stop, poll_interval_s=0.3)
    train = trained(watch=plan, bad=6, last=20, learning_rate=0.05)
    watched(first_of(train, task), plan)

    result = train.execute(task.context)

    assert (result["attempt"], result["status"]) == (2, "Completed")
    assert (result["rule_retries"], result["resumes_at"]) == (1, 2)
    assert result["learning_rate"] == pytest.approx(0.005)
    assert result["checkpoint_s3_uri"].endswith("-rule-retry-1/")
    assert "verdict" not in result
    assert watched(train.task_jobs(task.context).name_of(2), plan)["watched"]["stopped_by"] is None


@pytest.mark.slow
def test_cleared_task_neither_lowers_the_rate_again_nor_rolls_back(trained: Any, task: Any) -> None:
    on_stop = {"action": "retry_with_lower_learning_rate", "factor": 0.5}
    plan = WatchPlan(rules=("NonFinite",), conf=OURS, on_stop=on_stop)
    train = trained(watch=plan, bad=4, learning_rate=0.05, guard=True)
    told = train.execute(task.context)
    assert (told["attempt"], told["ended_by"]) == (2, "rule")
    hyperparameters = {"bad": 10**6, "last": 3, "learning_rate": 0.05}
    again = WatchedTrainingJobOperator(
        task_id="train",
        spec={**train.spec, "hyperparameters": hyperparameters},
        watch=plan,
        deferrable=False,
    )

    result = again.execute(task.context)

    assert (result["attempt"], result["status"]) == (3, "Completed")
    assert (result["rule_retries"], result["learning_rate"]) == (1, 0.025)
    assert result["checkpoint_s3_uri"] == told["checkpoint_s3_uri"]
    assert "resumes_at" not in result


@pytest.mark.parametrize(("were_verdicts", "rate"), [("yn", 0.25), ("nyn", 0.125), ("yy", 0.5)])
def test_a_rate_is_not_lowered_for_a_stop_that_was_the_tasks_result(
    were_verdicts: str, rate: float
) -> None:
    stops = [
        EarlierStop(step=None, checkpoints="s3://b/c", is_verdict=each == "y")
        for each in were_verdicts
    ]
    request = {"HyperParameters": {"learning_rate": "0.5"}}

    change_request(None, request, RuleRetry(factor=0.5, most=3), stops=stops)

    assert request["HyperParameters"] == {"learning_rate": str(rate)}


@pytest.mark.parametrize("num_verdicts", [1, 2, 3])
def test_after_a_verdict_the_training_goes_on_where_the_last_job_ended(num_verdicts: int) -> None:
    stops = [EarlierStop(step=9, checkpoints="s3://b/c")]
    last = EarlierStop(step=7, checkpoints="s3://b/c-rule-retry-1", is_verdict=True)
    request = {
        "HyperParameters": {"learning_rate": "0.5"},
        "CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/checkpoints"},
    }

    facts = change_request(
        None, request, RuleRetry(factor=0.5), stops=[*stops, *[last] * num_verdicts]
    )

    assert facts == {"rule_retries": 1, "learning_rate": 0.25}
    assert request["HyperParameters"] == {"learning_rate": "0.25"}
    assert request["CheckpointConfig"] == {
        "S3Uri": last.checkpoints,
        "LocalPath": "/opt/ml/checkpoints",
    }


@pytest.mark.parametrize("given", ["s3://{}/ddp-x1", "s3://{}/ddp-x1/"])
def test_a_retrys_checkpoints_are_a_folder_beside_the_first_jobs(
    aws_connection: RunningEngine, given: str
) -> None:
    at = given.format(aws_connection.bucket)
    request = {
        "HyperParameters": {"learning_rate": "0.5"},
        "CheckpointConfig": {"S3Uri": at},
        "Environment": {"TRAINYARD_CHECKPOINT_S3_URI": at, "MODE": "x"},
    }

    stops = [EarlierStop(step=9, checkpoints=at)]
    change_request(aws_connection.client("s3"), request, RuleRetry(factor=0.5), stops=stops)

    expected = f"s3://{aws_connection.bucket}/ddp-x1-rule-retry-1/"
    assert request["CheckpointConfig"]["S3Uri"] == expected
    assert request["Environment"] == {"TRAINYARD_CHECKPOINT_S3_URI": expected, "MODE": "x"}


def test_the_rules_of_a_retry_know_what_the_jobs_before_wrote(
    aws_connection: RunningEngine, task: Any
) -> None:
    s3, bucket = aws_connection.client("s3"), aws_connection.bucket
    at = f"s3://{bucket}/{task.run_id}/checkpoints/"
    names = ["0001.algo-1/00000001.bundle", "0002.algo-2/00000007.bundle", "traces/trace-1.json.gz"]
    for name in names:
        s3.put_object(Bucket=bucket, Key=f"{task.run_id}/checkpoints-statistics/{name}", Body=b"x")
    request = {
        "HyperParameters": {"learning_rate": "0.5"},
        "CheckpointConfig": {"S3Uri": at},
        "Environment": place_variables(at),
    }
    own = f"{task.run_id}/checkpoints-rule-retry-1-statistics/"
    s3.put_object(Bucket=bucket, Key=f"{own}{names[0]}", Body=b"there")

    stops = [EarlierStop(step=9, checkpoints=at)]
    change_request(s3, request, RuleRetry(factor=0.5), stops=stops)

    assert request["Environment"]["TRAINYARD_STATISTICS_S3_URI"] == f"s3://{bucket}/{own}"
    found = s3.list_objects_v2(Bucket=bucket, Prefix=own)["Contents"]
    assert [each["Key"].removeprefix(own) for each in found] == names[:2]
    assert s3.get_object(Bucket=bucket, Key=f"{own}{names[0]}")["Body"].read() == b"there"


def test_a_retry_goes_on_without_statistics_that_cannot_be_copied(
    aws_connection: RunningEngine, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    s3, bucket = aws_connection.client("s3"), aws_connection.bucket
    at = f"s3://{bucket}/{task.run_id}/checkpoints/"
    for number in range(1, 6 * COPIES_AT_ONCE):
        name = f"checkpoints-statistics/0001.algo-1/{number:08d}.bundle"
        s3.put_object(Bucket=bucket, Key=f"{task.run_id}/{name}", Body=b"x")
    request = {
        "HyperParameters": {"learning_rate": "0.5"},
        "CheckpointConfig": {"S3Uri": at},
        "Environment": place_variables(at),
    }
    own = f"{task.run_id}/checkpoints-rule-retry-1-statistics/"
    refusal = {"what": "s3_error", "operation": "CopyObject", "key_prefix": own, "status": 403}

    with faults(aws_connection.endpoint_url, {**refusal, "count": 1}), caplog.at_level("WARNING"):
        stops = [EarlierStop(step=9, checkpoints=at)]
        facts = change_request(s3, request, RuleRetry(factor=0.5), stops=stops)

    assert facts["learning_rate"] == 0.25
    assert request["Environment"]["TRAINYARD_STATISTICS_S3_URI"] == f"s3://{bucket}/{own}"
    assert caplog.text.count("lack statistics of earlier jobs") == 1
    copied = s3.list_objects_v2(Bucket=bucket, Prefix=own).get("Contents", [])
    assert len(copied) < 5 * COPIES_AT_ONCE, "what was queued is not copied"


@pytest.mark.parametrize("sent", [{}, {"learning_rate": '"fast"'}])
def test_retry_without_a_learning_rate_is_refused_before_the_first_job(
    aws_connection: RunningEngine, script: Any, task: Any, sent: dict[str, str]
) -> None:
    plan = WatchPlan(conf=OURS, on_stop={"action": "retry_with_lower_learning_rate"})
    spec = script(SCRIPT, hyperparameters={"bad": 1, "last": 1, **sent})
    train = WatchedTrainingJobOperator(task_id="train", spec=spec, watch=plan, deferrable=False)

    with pytest.raises(SpecError, match=r"hyperparameters\.learning_rate"):
        train.execute(task.context)

    assert train.task_jobs(task.context).service.describe(first_of(train, task)) is None


def test_a_retry_that_is_no_retry_is_refused() -> None:
    with pytest.raises(SpecError, match=r"(?s)factor.*most"):
        read_retry({"factor": 2, "most": 9})


def test_job_that_is_not_there_is_told_as_absent(aws_connection: RunningEngine) -> None:
    assert watched("no-such-job", absent_s=0.0) == {"absent": "no-such-job", "absent_s": 0.0}


def test_task_waits_while_the_watched_one_has_not_begun(
    aws_connection: RunningEngine, task: Any
) -> None:
    asked = {"task_id": "watch_rules", "watched_task_id": "train", "watch": PLAN}
    task.state = "scheduled"
    with pytest.raises(AirflowRescheduleException):
        CheckRulesOperator(**asked, deferrable=False).execute(task.context)
    with pytest.raises(TaskDeferred):
        CheckRulesOperator(**asked).execute(task.context)
    # `dag.test()` runs one task after the other, a deferred one to its trigger's end.
    with pytest.raises(AirflowRescheduleException):
        CheckRulesOperator(**asked).execute_complete(
            task.context, {"absent": "x", "absent_s": 20.0}
        )


@pytest.mark.slow
def test_task_defers_to_the_trigger_and_ends_with_what_it_found(trained: Any, task: Any) -> None:
    train = trained(bad=3)
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)

    with pytest.raises(TaskDeferred) as deferred:
        check.execute(task.context)

    assert deferred.value.trigger.watch.job_name == first_of(train, task)
    event = watched(first_of(train, task))
    result = check.execute_complete(task.context, event)
    assert result["stopped_by"]["rule"] == "NonFinite"


def test_task_ends_where_the_watched_one_ended_without_a_job(
    aws_connection: RunningEngine, task: Any
) -> None:
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)
    task.state = "failed"

    result = check.execute_complete(task.context, {"absent": "x", "absent_s": 20.0})

    assert result == {"watched_job": None, "issues": []}


@pytest.mark.slow
def test_next_attempt_of_a_failed_job_is_watched(trained: Any, task: Any) -> None:
    train = trained(last=1)
    watched(first_of(train, task))
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)
    task.state = "up_for_retry"
    told: dict[str, Any] = {"absent_s": 20.0}
    found = {"stopped_by": None, "job_status": "Failed", "issues": []}
    told |= {"watched": {**found, "watched_job": first_of(train, task)}}

    began = time.monotonic()
    with pytest.raises(TaskDeferred) as deferred:
        check.execute_complete(task.context, told)

    assert deferred.value.trigger.watch.job_name == train.task_jobs(task.context).name_of(2)
    assert time.monotonic() - began < 60


@pytest.fixture
def two_jobs(trained: Any, task: Any) -> tuple[Any, str, str]:
    """Return the watched task's jobs, and the names of an ended one without a watch and of a running one."""
    train = trained(last=8, bad=5, guard=1)
    jobs = train.task_jobs(task.context)
    first, second = jobs.name_of(1), jobs.name_of(2)
    until_ended(jobs.service, first)
    train.spec["hyperparameters"] = {"bad": 10**6, "last": 600}
    jobs.service.create(train.job_run(task.context).render(second)[0])
    return jobs, first, second


def job_deferred_for(act: Any, *arguments: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of the job that a task defers for, and what it is resumed with."""
    with pytest.raises(TaskDeferred) as deferred:
        act(*arguments, **more)
    return deferred.value.trigger.watch.job_name, deferred.value.kwargs


@pytest.mark.slow
def test_a_running_job_is_watched_before_one_that_ended_while_the_trigger_had_failed(
    two_jobs: Any, task: Any
) -> None:
    jobs, first, second = two_jobs
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)

    name, _ = job_deferred_for(check.execute, task.context)
    assert name == second
    jobs.service.stop(second)
    last = watched(second)
    name, kwargs = job_deferred_for(check.execute_complete, task.context, last)
    assert name == first
    event = watched(first)
    task.state = "failed"

    result = check.execute_complete(task.context, event, **kwargs)

    assert event["watched"]["issues"][0]["step"] == 5
    assert result == last["watched"]


@pytest.mark.slow
def test_an_ended_job_whose_statistics_cannot_be_read_is_given_up(
    two_jobs: Any, task: Any, aws_connection: RunningEngine
) -> None:
    jobs, first, second = two_jobs
    jobs.service.stop(second)
    until_ended(jobs.service, second)
    at = place_variables(jobs.service.describe(first).checkpoint_s3_uri)[
        "TRAINYARD_STATISTICS_S3_URI"
    ]
    key = at.partition(aws_connection.bucket)[2].lstrip("/") + "0001.algo-1/00000001.bundle"
    aws_connection.client("s3").put_object(Bucket=aws_connection.bucket, Key=key, Body=b"odd\n" * 9)
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)
    name, _ = job_deferred_for(check.execute, task.context)
    assert name == first
    event = watched(first)
    assert event["error"]["error"] == "ContractError"

    name, _ = job_deferred_for(check.execute_complete, task.context, event)

    assert name != first
    assert job_deferred_for(check.execute, task.context)[0] != first, "in the next try, too"
    last = {**event, "job_name": second}
    task.state = "failed"
    with pytest.raises(ContractError):
        check.execute_complete(task.context, last)


def test_a_failed_trigger_is_tried_again_without_a_readable_store(
    aws_connection: RunningEngine, task: Any
) -> None:
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)
    context = {**task.context, "task_state_store": UnreadableStore()}
    failed = (TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_FAILURE}, context)

    with pytest.raises(AirflowRescheduleException):
        check.resume_execution(*failed)


def test_a_failed_trigger_is_tried_again_while_the_watched_task_goes_on(
    aws_connection: RunningEngine, task: Any
) -> None:
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=PLAN)
    failed = (TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_FAILURE}, task.context)
    pauses = []
    for _ in range(2):
        with pytest.raises(AirflowRescheduleException) as again:
            check.resume_execution(*failed)
        pauses.append((again.value.reschedule_date - datetime.now(UTC)).total_seconds())
    assert 0 < pauses[0] < pauses[1]

    task.state = "failed"
    with pytest.raises(TaskDeferralError):
        check.resume_execution(*failed)


ASKED = WatchPlan(conf=OURS, on_stop={"action": "ask"}, poll_interval_s=0.5)
FOUND = {
    "watched_job": "first",
    "job_status": "Stopped",
    "num_records": 4,
    "num_issues": 0,
    "issues": [],
    "stopped_by": {"name": "NonFinite", "step": 4},
}


def test_what_was_found_outlasts_a_question_whose_answer_is_the_end(
    aws_connection: RunningEngine, task: Any
) -> None:
    check = CheckRulesOperator(task_id="watch_rules", watched_task_id="train", watch=ASKED)
    task.state = "awaiting_input"
    event: dict[str, Any] = {"watched": FOUND, "absent_s": 6.0}
    kwargs: dict[str, Any] = {}
    for absent_s in (1.0, 2.0, 4.0, 6.0, 6.0):  # of looks every 0.5 s
        with pytest.raises(TaskDeferred) as deferred:
            check.execute_complete(task.context, event, **kwargs)
        kwargs = deferred.value.kwargs
        assert deferred.value.trigger.watch.absent_s == absent_s
        assert asdict(deferred.value.trigger.watch.task) == {
            "dag_id": task.dag_id,
            "run_id": task.run_id,
            "task_id": "train",
            "map_index": -1,
        }
        event = {"absent": "second", "absent_s": absent_s}
    task.state = "success"

    assert check.execute_complete(task.context, event, **kwargs) == FOUND


class Looked(TaskSurroundings):
    """A task whose watched one waits for an answer; notes at each look how deep the stack is."""

    depths: list[int]

    def get_task_states(self, **_: Any) -> dict[str, dict[str, str]]:
        self.depths.append(len(inspect.stack(context=0)))
        return {self.run_id: {"train": "awaiting_input" if len(self.depths) < 6 else "skipped"}}


def test_a_worker_that_waits_for_an_answer_does_not_recurse(
    aws_connection: RunningEngine,
) -> None:
    check = CheckRulesOperator(
        task_id="watch_rules",
        watched_task_id="train",
        watch=replace(ASKED, poll_interval_s=0.01),
        deferrable=False,
    )
    task = Looked(run_id=f"run-{uuid.uuid4().hex[:8]}")
    task.depths = []

    result = check.execute_complete(task.context, {"watched": FOUND, "absent_s": 0.0})

    assert result == FOUND
    assert len(task.depths) == 6
    assert len(set(task.depths)) == 1


class Telling:
    """Airflow's supervisor, which tells the state of the watched task: one after the other."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    async def asend(self, msg: GetTaskStates) -> TaskStatesResult:
        (run_id,), (task_id,) = msg.run_ids or (), msg.task_ids or ()
        return TaskStatesResult(task_states={run_id: {task_id: self.states.pop(0)}})


@pytest.mark.parametrize(
    ("is_in_triggerer", "left"), [(True, ["never"]), (False, ["queued", "running", "never"])]
)
def test_no_worker_is_woken_while_the_watched_task_is_queued(
    aws_connection: RunningEngine,
    monkeypatch: pytest.MonkeyPatch,
    is_in_triggerer: bool,
    left: list[str],
) -> None:
    """`dag.test()` sets no task instance: it runs the watched task only after this trigger."""
    supervisor = Telling("scheduled", "queued", "running", "never")
    monkeypatch.setattr(
        "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False
    )
    task = {"dag_id": "dag", "run_id": "run", "task_id": "train"}
    often = replace(ASKED, poll_interval_s=0.01)

    trigger = rules_trigger("no-such-job", often, absent_s=0.0, watched_task=task)
    trigger.task_instance = TRY if is_in_triggerer else None

    assert "absent" in event_of(trigger)
    assert supervisor.states == left


def test_no_worker_is_woken_while_the_watched_task_waits_for_an_answer(
    aws_connection: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Telling("awaiting_input", "up_for_retry", "awaiting_input", "success", "never")
    monkeypatch.setattr(
        "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False
    )
    task = {"dag_id": "dag", "run_id": "run", "task_id": "train"}

    often = replace(ASKED, poll_interval_s=0.01)

    told = watched("no-such-job", often, absent_s=0.0, watched_task=task)

    assert told == {"absent": "no-such-job", "absent_s": pytest.approx(0.08)}
    assert supervisor.states == ["never"]
