"""No capacity, a full quota, a hang and a limit, on a real engine: what the operator does about each."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import TaskDeferred
from botocore.exceptions import ClientError

from sagemaker_engine.testing import faults, times_fired
from tests.plugins.test_training_job_operator import (
    deferred,
    execute,
    job_names,
    operator,
    out_of_time_after_create,
)
from trainyard.errors import (
    BudgetExceededError,
    CapacityError,
    HungJobError,
    QuotaExceededError,
    QuotaTooSmallError,
    ResumableTimeLimitError,
    SpecError,
    TimeLimitError,
)
from trainyard_airflow.hooks.job_logs import last_lines
from trainyard_airflow.jobs.quota_wait import QuotaWait
from trainyard_airflow.jobs.steps import AwaitStop

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PRINTS = 'print("trainyard done step=1")\n'
FALLS_SILENT = """
import pathlib, time
kept = pathlib.Path("/opt/ml/checkpoints/step")
if kept.exists():
    print("trainyard done step=2")
else:
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("1")
    print("trainyard step=1 loss=2.5", flush=True)
    while True:
        time.sleep(0.05)
"""
NEVER_ENDS = "import time\nwhile True:\n    time.sleep(0.05)\n"
SAVES_AND_NEVER_ENDS = FALLS_SILENT.replace("trainyard", "other")
NO_CAPACITY = {"what": "no_capacity", "job": "plugins-test-train-*"}
CAPACITY_ERROR = {"what": "capacity_error", "job": "plugins-test-train-*"}
NO_QUOTA = (
    "The account-level service limit 'ml.m5.large for spot training job usage' is 0 Instances, with "
    "current utilization of 0 Instances and a request delta of 1 Instances."
)
QUOTA_FULL = {"what": "resource_limit", "operation": "CreateTrainingJob"}


def on_ladder(spec: dict[str, Any], *rungs: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with a ladder in place of its instance type."""
    ladder = rungs or ({}, {"use_spot_instances": False})
    return {
        **{key: value for key, value in spec.items() if key != "instance_type"},
        "capacity_ladder": [{"instance_type": "ml.m5.large", **each} for each in ladder],
    }


def checkpoints(engine: RunningEngine, task: Any) -> str:
    return f"s3://{engine.bucket}/checkpoints/{task.run_id}"


def event_of(trigger: Any) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError("the trigger fired no event")

    return asyncio.run(first())


@pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])
def test_capacity_error_leads_to_the_next_rung_in_the_same_start(
    aws_connection, task, script, sagemaker, deferrable
):
    made = operator(on_ladder(script(PRINTS)), deferrable=deferrable)
    with faults(aws_connection.endpoint_url, CAPACITY_ERROR):
        if deferrable:
            first = deferred(made, task)
            event = event_of(first.trigger)
            with pytest.raises(type(first)) as again:
                made.execute_complete(task.context, event)
            result = made.execute_complete(task.context, event_of(again.value.trigger))
        else:
            result = execute(made, task)

    assert result["status"] == "Completed"
    assert (result["attempt"], result["rung"], result["is_spot"]) == (2, 1, False)
    assert result["rung_name"] == "1 x ml.m5.large on demand"
    assert result["rung_reason"].startswith("no capacity on tier 0 (1 x ml.m5.large spot)")
    (earlier,) = result["earlier_attempts"]
    assert (earlier["rung"], earlier["is_spot"], earlier["status"]) == (0, True, "Failed")
    assert len(job_names(sagemaker, task)) == 2


@pytest.mark.slow
def test_waiting_for_longer_than_the_rung_allows_leads_to_the_next(
    aws_connection, task, script, sagemaker, caplog
):
    spec = on_ladder(script(PRINTS), {"max_wait_s": 2}, {"use_spot_instances": False})
    with faults(aws_connection.endpoint_url, NO_CAPACITY), caplog.at_level("INFO"):
        result = execute(operator(spec), task)

    assert (result["status"], result["attempt"], result["rung"]) == ("Completed", 2, 1)
    assert result["rung_waited_s"] >= 2
    assert result["earlier_attempts"][0]["status"] == "Stopped"
    assert result["earlier_attempts"][0]["started_at"] is None
    assert ": it has waited for instances for" in caplog.text


@pytest.mark.slow
def test_last_rung_without_capacity_raises_and_the_next_start_begins_the_ladder_again(
    aws_connection, task, script
):
    spec = on_ladder(script(PRINTS))
    with (
        faults(aws_connection.endpoint_url, {**CAPACITY_ERROR, "count": 2}),
        pytest.raises(CapacityError),
    ):
        execute(operator(spec), task)
    result = execute(operator(spec), task)

    assert (result["attempt"], result["rung"], result["is_spot"]) == (3, 0, True)


def test_full_quota_is_waited_for_without_a_retry(aws_connection, task, script, sagemaker, caplog):
    url = aws_connection.endpoint_url
    with faults(url, {**QUOTA_FULL, "count": 2}), caplog.at_level(logging.INFO):
        result = execute(operator(script(PRINTS)), task)
        assert times_fired(url) == [2]

    assert (result["status"], result["attempt"]) == ("Completed", 1)
    assert result["quota_waited_s"] >= 1
    assert sum("has waited for quota since" in each for each in caplog.messages) == 2
    assert len(job_names(sagemaker, task)) == 1


def test_full_quota_is_waited_for_in_the_triggerer(aws_connection, task, script):
    made = operator(script(PRINTS), deferrable=True)
    began = datetime.now(UTC)
    with faults(aws_connection.endpoint_url, QUOTA_FULL):
        waiting = deferred(made, task)
    assert isinstance(waiting.trigger, DateTimeTrigger)
    assert waiting.trigger.moment > began
    with pytest.raises(type(waiting)) as following:
        made.execute_after_quota(task.context, None, **waiting.kwargs)
    event = event_of(following.value.trigger)
    task.xcoms.clear()
    result = made.execute_complete(task.context, event)

    assert (result["status"], result["attempt"]) == ("Completed", 1)
    assert set(task.xcoms) == set(), "its name was stored before the deferral"


@pytest.mark.slow
def test_code_is_packed_once_however_long_the_quota_is_full(aws_connection, task, script):
    spec = script(PRINTS)
    with faults(aws_connection.endpoint_url, {**QUOTA_FULL, "count": 2}):
        first = deferred(operator(spec, deferrable=True), task)
        Path(spec["source_dir"], "job.py").unlink()
        again = resumed_after_quota(operator(spec, deferrable=True), task, first)
    job = resumed_after_quota(operator(spec, deferrable=True), task, again)

    assert json.dumps(again.kwargs)
    assert event_of(job.trigger)["job"]["status"] == "Completed"
    with pytest.raises(SpecError, match=r"job\.py"):
        execute(operator(spec), replace(task, run_id=f"{task.run_id}-other", xcoms={}))


def test_a_wait_for_a_stopping_job_goes_on_with_the_quotas_wait(aws_connection, task, script):
    made = operator(script(PRINTS), deferrable=True)
    quota = QuotaWait(began_at=1.0, rung_began_at=2.0, refusals=3, full_rungs=(0,))

    with pytest.raises(TaskDeferred) as waiting:
        made.take(
            task.context, made.job_run(task.context), AwaitStop(job_name="a-job", quota=quota)
        )

    assert waiting.value.method_name == made.execute_after_quota.__name__
    assert QuotaWait.from_dict((waiting.value.kwargs or {})["quota"]) == quota


def resumed_after_quota(made: Any, task: Any, waiting: TaskDeferred) -> TaskDeferred:
    """Resume a task that waits for the quota in another process, and return how it waits then."""
    with pytest.raises(TaskDeferred) as following:
        made.execute_after_quota(task.context, None, **(waiting.kwargs or {}))
    return following.value


@pytest.mark.slow
def test_quota_that_stays_full_for_longer_than_the_rung_allows_leads_to_the_next(
    aws_connection, task, script
):
    spec = on_ladder(script(PRINTS), {"max_wait_s": 1}, {"use_spot_instances": False})
    with faults(aws_connection.endpoint_url, {**QUOTA_FULL, "count": 2}):
        # Asked again only when the rung's second is over, however the pause is jittered.
        result = execute(operator(spec, poll_interval_s=2), task)

    assert (result["attempt"], result["rung"], result["is_spot"]) == (1, 1, False)
    assert result["rung_reason"] == "the account's quota for tier 0 was used up"


@pytest.mark.parametrize("rungs", [2, 1], ids=["one more rung", "the last rung"])
def test_quota_that_could_never_hold_the_job_leads_to_the_next_rung_at_once(
    aws_connection, task, script, rungs
):
    ladder = [{}, {"use_spot_instances": False}][:rungs]
    made = operator(on_ladder(script(PRINTS), *ladder))
    refusals = iter([{"Error": {"Code": "ResourceLimitExceeded", "Message": NO_QUOTA}}])

    def refuse_once(**_: Any) -> None:
        if (answer := next(refusals, None)) is not None:
            raise ClientError(answer, "CreateTrainingJob")

    events = made.clients.client("sagemaker").meta.events
    events.register("before-call.sagemaker.CreateTrainingJob", refuse_once)
    if rungs == 1:
        with pytest.raises(QuotaTooSmallError, match="0 Instances"):
            execute(made, task)
        return
    result = execute(made, task)

    assert (result["attempt"], result["rung"], result["is_spot"]) == (1, 1, False)


def test_quota_that_stays_full_on_the_last_rung_is_an_error(aws_connection, task, script):
    spec = on_ladder(script(PRINTS), {"max_wait_s": 1})
    with (
        faults(aws_connection.endpoint_url, {**QUOTA_FULL, "count": None}),
        pytest.raises(QuotaExceededError),
    ):
        execute(operator(spec), task)


def test_quota_that_stays_full_is_an_error_without_a_ladder_too(aws_connection, task, script):
    spec = {**script(PRINTS), "max_quota_wait_s": 1}
    with (
        faults(aws_connection.endpoint_url, {**QUOTA_FULL, "count": None}),
        pytest.raises(QuotaExceededError),
    ):
        execute(operator(spec), task)


def test_execution_timeout_ends_the_waiting_for_quota(aws_connection, task, script, sagemaker):
    made = operator(script(PRINTS), poll_interval_s=60)
    with (
        faults(aws_connection.endpoint_url, {**QUOTA_FULL, "count": None}),
        pytest.raises(TimeLimitError, match="never created"),
        out_of_time_after_create(made),
    ):
        execute(made, task)

    assert job_names(sagemaker, task) == []


@pytest.mark.slow
def test_training_that_falls_silent_is_stopped_and_resumed(aws_connection, task, script, sagemaker):
    place = {"checkpoint_s3_uri": checkpoints(aws_connection, task), "heartbeat_timeout_s": 3}
    made = operator(script(FALLS_SILENT, **place))
    with pytest.raises(HungJobError, match="logged no progress") as raised:
        execute(made, task)
    assert made.retry_policy.evaluate(raised.value, 1, 3).action is RetryAction.RETRY
    result = execute(operator(script(FALLS_SILENT, **place)), task)

    assert (result["status"], result["attempt"]) == ("Completed", 2)
    (earlier,) = result["earlier_attempts"]
    assert earlier["status"] == "Stopped"
    assert len(job_names(sagemaker, task)) == 2


@pytest.mark.slow
def test_silence_from_before_the_trigger_counts(aws_connection, task, script, sagemaker, logs):
    spec = script(FALLS_SILENT, checkpoint_s3_uri=checkpoints(aws_connection, task))
    deferred(operator({**spec, "heartbeat_timeout_s": 0}, deferrable=True), task)
    (name,) = job_names(sagemaker, task)
    heard_at = _heard_at(logs, name)
    restarted = deferred(operator({**spec, "heartbeat_timeout_s": 4}, deferrable=True), task)
    event = event_of(restarted.trigger)

    assert event["job"]["status"] == "Stopped"
    described = sagemaker.describe_training_job(TrainingJobName=name)
    stopped_at = described["SecondaryStatusTransitions"][-1]["StartTime"].timestamp()
    assert 4 <= stopped_at - heard_at <= 4 + 60
    with pytest.raises(HungJobError):
        operator(spec, deferrable=True).execute_complete(task.context, event)


def _heard_at(logs: Any, job: str) -> float:
    """Return when the job printed its only line, once it has."""
    until = time.monotonic() + 90
    while time.monotonic() < until:
        ends = last_lines(logs, group="/aws/sagemaker/TrainingJobs", job_name=job)
        if any("trainyard step=1" in line for each in ends for line in each.lines):
            return ends[0].ended_at_ms / 1000
        time.sleep(0.1)
    raise AssertionError("the job printed nothing")


@pytest.mark.parametrize(
    ("source", "max_run", "kind"),
    [
        pytest.param(
            SAVES_AND_NEVER_ENDS,
            12,
            ResumableTimeLimitError,
            id="checkpoints",
            marks=pytest.mark.slow,
        ),
        pytest.param(NEVER_ENDS, 2, TimeLimitError, id="none"),
    ],
)
def test_max_run_is_retried_only_where_the_attempt_left_checkpoints(
    aws_connection, task, script, source, max_run, kind
):
    uri = checkpoints(aws_connection, task)
    with pytest.raises(TimeLimitError) as raised:
        execute(operator(script(source, max_run=max_run, checkpoint_s3_uri=uri)), task)

    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ((), r"1 x ml.m5.large or 1 x ml.p4d.24xlarge costs up to \$25"),
        (("arn:aws:sagemaker:us-east-1:123456789012:training-plan/ours",), None),
    ],
    ids=["on demand", "in a plan"],
)
def test_budget_holds_for_the_dearest_type_that_the_service_may_choose(
    aws_connection, task, script, plan, says
):
    choices = [
        {"instance_type": "ml.m5.large", "instance_count": 1},
        {"instance_type": "ml.p4d.24xlarge", "instance_count": 1, "training_plan_arns": plan},
    ]
    spec = script(PRINTS, instance_type=None, instance_count=None, max_run=3600, budget_usd=5.0)
    job_type = operator({**spec, "instance_preferences": choices}).job_run(task.context).job_type

    if says is None:
        assert job_type.place([]).max_billed_s is None
        return
    with pytest.raises(BudgetExceededError, match=says):
        job_type.place([])


def test_attempt_that_could_exceed_the_budget_is_not_created(
    aws_connection, task, script, sagemaker
):
    with pytest.raises(BudgetExceededError, match=r"\$0.00 paid for earlier attempts"):
        execute(operator(script(PRINTS, max_run=3600, budget_usd=0.1)), task)

    assert job_names(sagemaker, task) == []
